#!/usr/bin/env bash
# Installs from Debian what the tests use and this machine lacks. Without root
# or apt-get it says which tests will not run; with CI=1 or CI=true it then
# fails, since a skipped test in CI goes unseen. BERTH_NO_INSTALL=1 installs
# nothing.
set -euo pipefail

# command or file | Debian package | what does not run without it
needs=(
	"containerd|containerd|jobs in containers: agent/containerdrt, e2e"
	"runc|runc|jobs in containers: agent/containerdrt, e2e"
	"busybox|busybox-static|jobs in containers: the image that they run"
	"gcc|gcc|the race detector, and the reading of GPUs by NVML"
	"protoc|protobuf-compiler|the check that generated code is up to date"
	"/usr/include/google/protobuf/timestamp.proto|libprotobuf-dev|the check that generated code is up to date"
	"systemd-analyze|systemd|the check of the systemd units in deploy"
	"tmux|tmux|the live screen in a terminal that is none of ours: e2e"
	"torchrun|python3-torch|PyTorch programs traced and measured: cmd/internal/tracer, deploy/profile"
)

# runc lies in sbin, which is not on every user's path.
PATH=$PATH:/usr/sbin

# missing prints the lines of needs whose command is not there.
missing() {
	local line cmd
	for line in "${needs[@]}"; do
		cmd=${line%%|*}
		if ! command -v "$cmd" >/dev/null && ! [[ -f $cmd ]]; then
			printf '%s\n' "$line"
		fi
	done
}

mapfile -t lacking < <(missing)
if ((${#lacking[@]} == 0)); then
	exit 0
fi

if [[ ${BERTH_NO_INSTALL:-} != 1 && $EUID == 0 ]] && command -v apt-get >/dev/null; then
	packages=()
	for line in "${lacking[@]}"; do
		rest=${line#*|}
		packages+=("${rest%%|*}")
	done
	printf 'installing for the tests: %s\n' "${packages[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null ||
		printf 'apt-get failed; going on with what is there\n' >&2
	mapfile -t lacking < <(missing)
fi

if ((${#lacking[@]} == 0)); then
	exit 0
fi
install=
{
	printf '\n******************************************************************\n'
	printf '* SOME TESTS WILL NOT RUN: programs are missing on this machine.\n'
	for line in "${lacking[@]}"; do
		rest=${line#*|}
		printf '*   %-16s (Debian: %s): %s\n' "${line%%|*}" "${rest%%|*}" "${rest#*|}"
		install+=" ${rest%%|*}"
	done
	printf '* As root: apt-get install%s\n' "$install"
	printf '******************************************************************\n\n'
} >&2
case ${CI:-} in
1 | true)
	printf 'CI needs them all; failing.\n' >&2
	exit 1
	;;
esac
