#!/bin/sh
# After an installation or an upgrade. Nothing is started or started again: when that
# is done is for whoever looks after the cluster to say.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case $1:${2:-} in
configure: | 1:*)
	echo "berth-coordinator: it starts by: systemctl enable --now berth-coordinator, once /etc/berth/coordinator.yaml is there (berth cluster init makes it; /usr/share/doc/berth/README.md says how)"
	;;
configure:* | 2:*)
	if [ -d /run/systemd/system ] && systemctl is-active -q berth-coordinator; then
		echo "berth-coordinator: the version before runs on until: systemctl restart berth-coordinator (one at a time, the leader last: /usr/share/doc/berth/docs/upgrades.md)"
	fi
	;;
esac
