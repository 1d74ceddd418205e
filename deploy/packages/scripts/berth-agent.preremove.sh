#!/bin/sh
# Before it is removed, not before an upgrade. Jobs that run go on to their end.
set -e

case $1 in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now berth-agent
	fi
	;;
esac
