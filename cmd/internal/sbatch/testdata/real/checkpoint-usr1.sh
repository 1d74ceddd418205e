#!/bin/bash
#SBATCH --job-name=ckpt
#SBATCH --gres=gpu:1
#SBATCH --time=02:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
save() { kill -USR1 "$pid"; wait "$pid"; scontrol requeue "$SLURM_JOB_ID"; }
trap save USR1
python train.py --resume &
pid=$!
wait "$pid"
