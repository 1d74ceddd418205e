#!/bin/csh
#SBATCH --job-name=apoa1
#SBATCH --gres=gpu:v100:2
#SBATCH --ntasks=20
#SBATCH --time=4:00:00
module load NAMD/3.0
namd3 +p$SLURM_NTASKS +setcpuaffinity +devices $CUDA_VISIBLE_DEVICES apoa1.namd
