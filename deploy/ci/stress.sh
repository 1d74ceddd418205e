#!/usr/bin/env bash
# Runs the tests on a machine that is another user's and busy: stress.sh TIMES
# [PACKAGE...]. Beside them twice as many busy loops as cores run; users and
# groups 1000 to 1005 have names, the host has another one, and the clock is
# Nepal's, a quarter of an hour off the others. All of that is seen by the tests
# alone: in a mount and a UTS namespace of their own. It needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
times=$1
shift
if [[ ${BERTH_STRESSED:-} != 1 ]]; then
	if ((EUID != 0)); then
		echo "stress: needs root, for a namespace with other users in it" >&2
		exit 1
	fi
	BERTH_STRESSED=1 exec unshare --mount --uts --propagation private "$0" "$times" "$@"
fi

dir=$(mktemp -d)
loops=()
tidy() {
	for pid in "${loops[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	rm -rf "$dir"
}
trap tidy EXIT

grep -vE '^[^:]*:[^:]*:100[0-5]:' /etc/passwd >"$dir/passwd"
grep -vE '^[^:]*:[^:]*:100[0-5]:' /etc/group >"$dir/group"
for id in 1000 1001 1002 1003 1004 1005; do
	echo "stressed$id:x:$id:$id::/nonexistent:/bin/sh" >>"$dir/passwd"
	echo "crowd$id:x:$id:" >>"$dir/group"
done
mount --bind "$dir/passwd" /etc/passwd
mount --bind "$dir/group" /etc/group
{ cat /etc/hosts && echo "127.0.1.1 somebody-elses-machine"; } >"$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts
hostname somebody-elses-machine
export TZ=Asia/Kathmandu LC_ALL=C.UTF-8 LANG=de_DE.UTF-8

for ((i = 0; i < 2 * $(nproc); i++)); do
	while :; do :; done &
	loops+=($!)
done
green=0
for ((i = 1; i <= times; i++)); do
	began=$SECONDS
	if (($# > 0)); then
		go test -count=1 -timeout 40m "$@" && ok=1 || ok=0
	else
		make test TESTFLAGS=-count=1 && ok=1 || ok=0
	fi
	echo "stress: run $i of $times: $( ((ok)) && echo green || echo RED ) in $((SECONDS - began)) s"
	((green += ok)) || true
done
echo "stress: $green of $times green"
((green == times))
