#!/bin/bash
#SBATCH -J ddp2
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH -c 96
#SBATCH --mem=0
#SBATCH -t 2-0
#SBATCH --exclusive
#SBATCH -o %x-%j.log

head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
export MASTER_ADDR=$head_ip MASTER_PORT=29500

srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 \
  --rdzv_id=$RANDOM --rdzv_backend=c10d --rdzv_endpoint="$head_ip:29500" \
  multinode.py 50 10
