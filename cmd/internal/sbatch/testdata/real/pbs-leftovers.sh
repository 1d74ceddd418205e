#!/bin/bash
#PBS -l nodes=1:ppn=8:gpus=1
#PBS -l walltime=02:00:00
#SBATCH --gres=gpu:1
#SBATCH --time=02:00:00
cd $PBS_O_WORKDIR
python x.py
