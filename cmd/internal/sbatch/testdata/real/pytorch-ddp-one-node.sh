#!/bin/bash -l
#SBATCH --job-name=imagenet-r50
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --mem=200G
#SBATCH --time=1-12:00:00
#SBATCH --partition=gpu
#SBATCH --output=logs/%x_%j.out
#SBATCH --error=logs/%x_%j.err

module purge
module load cuda/12.1 python/3.11
source "$HOME/envs/torch/bin/activate"

export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / 4))
torchrun --standalone --nproc-per-node="$SLURM_GPUS_ON_NODE" train.py \
    --data /scratch/$USER/imagenet --batch-size 256
