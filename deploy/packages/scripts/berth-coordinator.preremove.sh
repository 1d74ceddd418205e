#!/bin/sh
# Before it is removed, not before an upgrade.
set -e

case $1 in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now berth-coordinator
	fi
	;;
esac
