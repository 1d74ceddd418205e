#!/bin/bash
#SBATCH --job-name=fold
#SBATCH --array=1-200%16
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=08:00:00
#SBATCH --output=logs/%A_%a.out
fasta=$(sed -n "${SLURM_ARRAY_TASK_ID}p" list.txt)
run_fold.sh "$fasta"
