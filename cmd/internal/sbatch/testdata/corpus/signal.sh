#!/bin/bash
#SBATCH --signal=B:USR1@120 --requeue
#SBATCH --gres=gpu:1 -t 4:00:00
trap 'touch checkpoint.now' USR1
python train.py & wait
