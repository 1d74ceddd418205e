#!/bin/bash
#SBATCH --job-name=tfrecords
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=02:00:00
#SBATCH --partition=cpu
#SBATCH --nice=100
python build_tfrecords.py --shards 1024 --workers $SLURM_CPUS_PER_TASK
