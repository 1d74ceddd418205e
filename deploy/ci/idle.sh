#!/usr/bin/env bash
# idle.sh PID [SECONDS]: what an agent costs at rest, with the process that asks
# the driver: processor time in percent of one core, and resident memory. The
# two are one program, whose pages are in memory once: together they hold what
# is resident of the agent and what the other has of its own.
set -euo pipefail

agent=${1:?pid of the agent}
seconds=${2:-60}

# nanoseconds that the threads of a process have run
ran() { cat "/proc/$1"/task/*/schedstat | awk '{sum += $1} END {printf "%d\n", sum}'; }
kib() { awk -v key="$2:" '$1 == key {print $2}' "/proc/$1/smaps_rollup"; }

child=$(ps -o pid=,args= --ppid "$agent" | awk '/ agent nvml *$/ {print $1}')
mapfile -t pids < <(printf '%s\n' "$agent" $child)
declare -A before
for p in "${pids[@]}"; do before[$p]=$(ran "$p"); done
sleep "$seconds"
total=0 together=0
for p in "${pids[@]}"; do
	used=$(($(ran "$p") - before[$p]))
	total=$((total + used))
	own=$(kib "$p" Anonymous)
	[[ $p == "$agent" ]] && own=$(kib "$p" Rss)
	together=$((together + own))
	awk -v p="$p" -v ns="$used" -v s="$seconds" -v rss="$(kib "$p" Rss)" -v anon="$(kib "$p" Anonymous)" \
		'BEGIN {printf "pid %d: %.3f %% of a core, %.1f MiB resident, %.1f MiB of them its own\n", p, ns / s / 1e7, rss / 1024, anon / 1024}'
done
awk -v ns="$total" -v s="$seconds" -v kib="$together" 'BEGIN {printf "together: %.3f %% of a core, %.1f MiB\n", ns / s / 1e7, kib / 1024}'
