#!/bin/bash
#SBATCH --job-name=lightning
#SBATCH --nodes=4
#SBATCH --gres=gpu:4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --mem=128gb
#SBATCH --time=0-04:00:00
#SBATCH --signal=SIGUSR1@90
#SBATCH --requeue

source activate lit
export NCCL_DEBUG=INFO
export PYTHONFAULTHANDLER=1
srun python3 train.py
