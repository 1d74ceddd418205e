#!/bin/bash
#SBATCH --job-name=spack
#SBATCH --partition=gpu --qos=debug
#SBATCH --time=00:15:00
#SBATCH --gpus-per-node=1
#SBATCH --licenses=matlab:1
. /opt/spack/share/spack/setup-env.sh
spack load cuda@12 /abcdef
./a.out
