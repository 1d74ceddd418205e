#!/bin/bash
#SBATCH --job-name=vllm
#SBATCH --gres=gpu:h100:2
#SBATCH --cpus-per-task=16
#SBATCH --mem=180G
#SBATCH --time=7-00:00:00
#SBATCH --open-mode=append
#SBATCH --output=%u-%x.log
#SBATCH --no-requeue

port=$((8000 + SLURM_JOB_ID % 1000))
echo "ssh -L $port:$(hostname):$port login"
apptainer exec --nv vllm.sif vllm serve meta/llama --tensor-parallel-size 2 --port $port
