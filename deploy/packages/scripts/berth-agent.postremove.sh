#!/bin/sh
# After it was removed or purged. What a cluster or its users may still want is never
# deleted here: a state cannot be made again.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case $1 in
purge | 0)
	# What an agent that was killed leaves mounted: in memory, the scripts of jobs that have ended.
	awk '$1 == "berth" && $2 ~ "^/run/berth-scripts(/|$)" { print $2 }' /proc/mounts | sort -r | while read -r room; do
		umount -l "$room" || :
	done
	for kept in /var/lib/berth/agent /etc/berth; do
		if [ -d "$kept" ] && [ -n "$(ls -A "$kept")" ]; then
			echo "berth-agent: $kept is kept; look at what is in it before you delete it"
		fi
	done
	;;
esac
