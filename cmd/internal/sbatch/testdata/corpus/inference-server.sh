#!/bin/bash
#SBATCH --job-name=vllm
#SBATCH --gres=gpu:2
#SBATCH --cpus-per-task=16
#SBATCH --mem=200G
#SBATCH --time=7-00:00:00
#SBATCH --no-requeue
PORT=$((8000 + SLURM_JOB_ID % 1000))
exec vllm serve my-org/model --tensor-parallel-size 2 --port "$PORT"
