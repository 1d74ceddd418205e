#!/bin/bash
# What users of a Slurm partition type on the day it becomes Berth's, and in
# the week after: their own commands, by links, against a whole cluster. Each
# step says "ok - NAME", "skip - NAME: why" or "not ok - NAME: what it printed".
# It runs in a folder of the user's, as the user.
set -u

step() { # step NAME FUNCTION
	local out rc
	out=$(set -e; "$2" 2>&1)
	rc=$?
	case $rc in
	0) echo "ok - $1" ;;
	77) echo "skip - $1: $(tail -n1 <<<"$out")" ;;
	*) printf 'not ok - %s: %s\n' "$1" "$(tr '\n' '~' <<<"$out")" ;;
	esac
}

same() { [ "$1" = "$2" ] || { echo "got <$1>, want <$2>"; return 1; }; }
has() { case $1 in *"$2"*) ;; *) echo "no <$2> in <$1>"; return 1 ;; esac; }
rc() { # rc WANT COMMAND...: it must end with that code
	local want=$1 got=0
	shift
	"$@" || got=$?
	[ "$got" = "$want" ] || { echo "exit code $got, want $want: $*"; return 1; }
}
state() { sacct -n -P -X -j "$1" -o State | head -n1; }
ended() { # ended ID STATE: wait for its end, as scripts do
	for _ in $(seq 600); do
		case $(state "$1") in
		"$2"*) return 0 ;;
		"" | PENDING | RUNNING | CONFIGURING | COMPLETING | REQUEUED) sleep 0.1 ;;
		*) echo "job $1 is $(state "$1"), want $2"; return 1 ;;
		esac
	done
	echo "job $1 is still $(state "$1")"
	return 1
}
runs() {
	for _ in $(seq 600); do
		[ "$(squeue -h -j "$1" -o %t)" = R ] && return 0
		sleep 0.1
	done
	echo "job $1 is $(squeue -h -j "$1" -o '%t %r')"
	return 1
}

cat >train.sh <<'SCRIPT'
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --gres=gpu:t4:1
#SBATCH --cpus-per-task=1
#SBATCH --mem=100M
#SBATCH --time=10
#SBATCH --output=%x-%j.out
#BERTH --gpu-mem=2G
echo "job $SLURM_JOB_ID ($SLURM_JOB_NAME) on $SLURM_JOB_NODELIST with $SLURM_GPUS_ON_NODE GPU: $CUDA_VISIBLE_DEVICES"
echo "args: $*"
SCRIPT

submit() {
	same "$(sbatch train.sh --epochs 3 2>notes)" "Submitted batch job 1"
	same "$(cat notes)" ""
	ended 1 COMPLETED
	has "$(cat train-1.out)" "with 1 GPU: GPU-"
	has "$(cat train-1.out)" "args: --epochs 3"
}
step "sbatch a script that worked yesterday" submit

parsable() { id=$(sbatch --parsable -Q train.sh); [ "$id" -gt 0 ]; ended "$id" COMPLETED; }
step "sbatch --parsable, for scripts" parsable

waits() { rc 5 sbatch -Q -W -o /dev/null --wrap 'exit 5'; }
step "sbatch --wait ends as the job does" waits

default_output() { id=$(sbatch --parsable -Q --wrap 'echo hello'); ended "$id" COMPLETED; same "$(cat "slurm-$id.out")" hello; }
step "output goes to slurm-ID.out" default_output

many_options() {
	id=$(sbatch --parsable -Q -G1 --gpus-per-node=1 --cpus-per-gpu=1 --mem-per-gpu=50M -t 5 -J many -p gpu --comment=c --export=ALL,X=7 \
		--signal=B:USR1@60 --mail-type=NONE --nice=5 --open-mode=truncate -o many.out -e many.err --wrap 'echo $X; echo e >&2')
	ended "$id" COMPLETED
	same "$(cat many.out many.err)" "7
e"
}
step "options of many kinds at once" many_options

refused() {
	rc 1 sbatch -Q --gres=gpu:99 train.sh
	rc 1 sbatch -Q -p nope train.sh
	rc 1 sbatch no-such-file.sh
	has "$(sbatch -Q --uid=0 train.sh 2>&1 || true)" "a job runs as the user who submits it"
}
step "what cannot be is refused at once" refused

test_only() { rc 0 sbatch -Q --test-only train.sh; }
step "sbatch --test-only" test_only

hold() {
	id=$(sbatch --parsable -Q -H train.sh)
	same "$(squeue -h -j "$id" -o '%t %r')" "PD JobHeldUser"
	scontrol release "$id"
	ended "$id" COMPLETED
}
step "sbatch -H, scontrol release" hold

queue() {
	id=$(sbatch --parsable -Q -J sleeper -G1 --mem=50M -t 5 -o /dev/null --wrap 'sleep 60')
	runs "$id"
	has "$(squeue --me)" "JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
	same "$(squeue -h -j "$id" -o '%i %P %j %T %D')" "$id gpu sleeper RUNNING 1"
	has "$(scontrol show job "$id")" "JobState=RUNNING"
	scancel "$id"
	ended "$id" CANCELLED
	rc 1 squeue -j 99999
	rc 1 scancel 99999
}
step "squeue, scontrol show job, scancel" queue

depends() {
	a=$(sbatch --parsable -Q -o /dev/null --wrap 'sleep 1')
	b=$(sbatch --parsable -Q -o b.out -d "afterok:$a" --wrap 'echo second')
	ended "$b" COMPLETED
	same "$(state "$a")" COMPLETED
	a=$(sbatch --parsable -Q -o /dev/null --wrap 'exit 1')
	b=$(sbatch --parsable -Q -o /dev/null -d "afterok:$a" --kill-on-invalid-dep=yes --wrap true)
	ended "$a" FAILED
	ended "$b" CANCELLED
	a=$(sbatch --parsable -Q -J one -d singleton -o /dev/null --wrap true)
	ended "$a" COMPLETED
}
step "dependencies: afterok, a failed one, singleton" depends

array() {
	out=$(sbatch --parsable -Q --array=0-3%2 -o 'a-%A_%a.out' --wrap 'echo task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_JOB_ID' 2>&1) || {
		echo "$out" | grep -o 'arrays cannot be submitted' && exit 77
		echo "$out"
		return 1
	}
	for i in 0 1 2 3; do ended "${out}_$i" COMPLETED; same "$(cat "a-${out}_$i.out")" "task $i of $out"; done
}
step "sbatch --array=0-3%2" array

nodes() {
	has "$(sinfo)" "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST"
	has "$(sinfo -h -o '%P %a %D')" "gpu* up 2"
	has "$(scontrol show node n1)" "NodeName=n1"
	has "$(scontrol show partition gpu)" "PartitionName=gpu"
	same "$(scontrol show hostnames 'n[1-2]' | tr '\n' ' ')" "n1 n2 "
}
step "sinfo, scontrol show node and partition" nodes

account() {
	id=$(sbatch --parsable -Q -J books -o /dev/null --wrap 'exit 3')
	ended "$id" FAILED
	same "$(sacct -n -P -X -j "$id" --format=JobID,JobName,State,ExitCode)" "$id|books|FAILED|3:0"
}
step "sacct with a format" account

interactive() {
	out=$(srun -Q -G1 --mem=50M -t 5 sh -c 'echo "in $SLURM_JOB_ID"; exit 0')
	has "$out" "in "
	rc 7 srun -Q --mem=50M -t 5 sh -c 'exit 7'
}
step "srun runs a command and ends as it does" interactive

allocate() {
	out=$(salloc -Q -G1 --mem=50M -t 5 sh -c 'echo "have $SLURM_JOB_ID"; srun hostname' 2>&1)
	has "$out" "have "
}
step "salloc, and srun in it" allocate

steps() {
	cat >steps.sh <<'SCRIPT'
#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=1 -G 2 --mem=50M -t 5 -o steps.out -Q
srun sh -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS on $(hostname)"' | sort
SCRIPT
	id=$(sbatch --parsable -Q steps.sh)
	ended "$id" COMPLETED
	has "$(cat steps.out)" "rank 0 of 2"
	has "$(cat steps.out)" "rank 1 of 2"
}
step "a script on two nodes starts its tasks by srun" steps

too_much() {
	id=$(berth submit --parsable -Q --gpus 1 --gpu-mem 1GiB --mem 100M --time 5m -o /dev/null -- berth sim-job --gpu-mem 3GiB --seconds 30)
	for _ in $(seq 300); do case $(state "$id") in OUT_OF_ME*) break ;; COMPLETED | CANCELLED*) break ;; esac; sleep 0.1; done
	has "$(state "$id")" OUT_OF_ME
	has "$(berth why "$id")" "OutOfGPUMemory"
}
step "a job above its GPU memory ends OUT_OF_MEMORY, and why says so" too_much

limit() { id=$(berth submit --parsable -Q --mem 50M --time 1s -o /dev/null -- sleep 60); ended "$id" TIMEOUT; }
step "a job at its time limit ends TIMEOUT" limit

own_words() {
	has "$(berth show 1)" "COMPLETED"
	has "$(berth logs 1)" "args: --epochs 3"
	has "$(berth history 1 2>&1 || berth history --all 2>&1)" "train"
	rc 0 berth eff 1
	has "$(berth predict --gpus 1 -- python train.py 2>&1)" "T4"
}
step "berth show, logs, history, eff, predict" own_words

lint() {
	mkdir -p jobs
	cp train.sh jobs/good.sh
	printf '#!/bin/sh\r\n#SBATCH -G1\r\n' >jobs/windows.sh
	rc 1 berth lint jobs
	same "$(berth lint -o name jobs || true)" "jobs/windows.sh"
}
step "berth lint over a folder of scripts" lint

waiting() {
	a=$(sbatch --parsable -Q -N2 --gpus-per-node=2 --mem=50M -t 5 -o /dev/null --wrap 'sleep 60')
	runs "$a"
	b=$(sbatch --parsable -Q -G1 --exclusive --mem=50M -t 5 -o /dev/null --wrap true)
	has "$(berth why "$b")" "GPU"
	rc 0 squeue --start -j "$b"
	scancel "$a"
	ended "$b" COMPLETED
}
step "a job that waits can say why, and starts in its turn" waiting

restart() {
	id=$(sbatch --parsable -Q --requeue --mem=50M -t 5 -o again.out --wrap 'echo "run ${SLURM_RESTART_COUNT:-0}"; [ -n "${SLURM_RESTART_COUNT:-}" ] || sleep 60')
	runs "$id"
	scontrol requeue "$id"
	ended "$id" COMPLETED
	has "$(cat again.out)" "run 1"
}
step "scontrol requeue runs it again" restart

torch() {
	id=$(berth submit --parsable --quiet -N2 --tasks-per-node 1 --mem 50M --time 5m -o 'rank-%t.out' -- sh -c 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"')
	ended "$id" COMPLETED
	has "$(cat rank-1.out)" "1 of 2 at $(cut -d' ' -f5 <rank-0.out)"
	has "$(sacct -n -P -X -j "$id" -o NNodes,State)" "2|COMPLETED"
}
step "two nodes find each other as torchrun's do" torch

echo done
