#!/bin/bash
#SBATCH --bb="capacity=1GB" --container=/images/x --reboot --core-spec=1
#SBATCH --export-file=vars.env --nodefile=nodes.txt --gpus-per-socket=1
#SBATCH -O -k --contiguous --switches=1@10:00 --spread-job --use-min-nodes --wait-all-nodes=1
#SBATCH --propagate --power=level --network=x --delay-boot=5 --time-min=10 --kill-on-invalid-dep=yes
true
