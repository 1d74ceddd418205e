#!/bin/bash

# Parameters
#SBATCH --array=0-7%4
#SBATCH --cpus-per-task=10
#SBATCH --error=/checkpoint/ann/%A_%a_0_log.err
#SBATCH --gpus-per-node=1
#SBATCH --job-name=submitit
#SBATCH --mem=40GB
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/checkpoint/ann/%A_%a_0_log.out
#SBATCH --partition=learn
#SBATCH --signal=USR2@90
#SBATCH --time=4320
#SBATCH --wckey=submitit

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /checkpoint/ann/%A_%a_%t_log.out --error /checkpoint/ann/%A_%a_%t_log.err /opt/py/bin/python -u -m submitit.core._submit /checkpoint/ann
