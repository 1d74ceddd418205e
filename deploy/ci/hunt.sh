#!/usr/bin/env bash
# Draws other cases for property tests: hunt.sh CHECKS TIME PACKAGE... With a
# TIME such as 2m each package has its share of it, and what is left then is
# left. It prints the seed first, so that what it finds can be found again.
set -euo pipefail
checks=$1 limit=$2
shift 2
seed=$((RANDOM * 32768 + RANDOM + 1))
echo "hunt: seed $seed, $checks draws each: $*"
run() { go test -count=1 -timeout 2h "$@" -rapid.seed="$seed" -rapid.checks="$checks"; }
if [[ -z $limit ]]; then
	run "$@"
	exit
fi
case $limit in
*h) seconds=$((${limit%h} * 3600)) ;;
*m) seconds=$((${limit%m} * 60)) ;;
*) seconds=${limit%s} ;;
esac
said=$(mktemp)
trap 'rm -f "$said"' EXIT
export -f run
export seed checks
end=$((SECONDS + seconds)) left=$# rc=0
for pkg; do
	# Compiling counts too, or many packages would take far longer.
	share=$(((end - SECONDS) / left--))
	if ((share < 1)); then
		echo "hunt: no time was left for $pkg"
		continue
	fi
	# One package at a time: go prints what tests of several say when all before have ended.
	got=0
	timeout "$share" bash -c 'run "$1"' run "$pkg" 2>&1 | tee "$said" || got=${PIPESTATUS[0]}
	if ((got == 124)) && ! grep -qE '^ *--- FAIL|^panic:|^FAIL' "$said"; then
		echo "hunt: $pkg stopped after $share s, nothing was found"
	elif ((got != 0)); then
		rc=1
	fi
done
exit "$rc"
