#!/bin/bash
#SBATCH --job-name=hvd
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=10
#SBATCH --mem=96000M
#SBATCH --time=08:00:00
#SBATCH --hint=nomultithread
module load openmpi tensorflow
mpirun -np $SLURM_NTASKS -bind-to none -map-by slot python resnet50_keras.py
