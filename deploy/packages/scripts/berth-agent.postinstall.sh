#!/bin/sh
# After an installation or an upgrade. Nothing is started or started again: when that
# is done is for whoever looks after the cluster to say.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case $1:${2:-} in
configure: | 1:*)
	echo "berth-agent: it starts by: systemctl enable --now berth-agent, once this node has joined (berth agent join; /usr/share/doc/berth/README.md says how)"
	;;
configure:* | 2:*)
	if [ -d /run/systemd/system ] && systemctl is-active -q berth-agent; then
		echo "berth-agent: the version before runs on until: systemctl restart berth-agent (jobs go on beside it)"
	fi
	;;
esac
