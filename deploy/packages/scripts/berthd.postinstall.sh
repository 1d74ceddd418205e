#!/bin/sh
# After an installation or an upgrade: the user berth, and the folders that daemons
# find. Debian says configure and the version before, rpm how many there are.
set -e

case $1 in
configure | 1 | 2) ;;
*) exit 0 ;;
esac
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers berth.conf
fi
if command -v systemd-tmpfiles >/dev/null; then
	systemd-tmpfiles --create berth.conf
fi
