#!/bin/bash
#SBATCH -J jax
#SBATCH -p gpu
#SBATCH -G 1
#SBATCH --mem-per-cpu=4G
#SBATCH -c 8
#SBATCH -t 600
export XLA_PYTHON_CLIENT_MEM_FRACTION=.80
python -m train --config=configs/vit_s16.py --workdir=/scratch/$USER/$SLURM_JOB_ID
