#!/bin/sh
# After it was removed or purged. What a cluster or its users may still want is never
# deleted here: a state cannot be made again.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case $1 in
purge | 0)
	for kept in /var/lib/berth/agent /etc/berth; do
		if [ -d "$kept" ] && [ -n "$(ls -A "$kept")" ]; then
			echo "berth-agent: $kept is kept; look at what is in it before you delete it"
		fi
	done
	;;
esac
