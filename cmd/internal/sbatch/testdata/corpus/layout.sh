#!/bin/bash
#SBATCH --ntasks-per-core=1 --hint=nomultithread --distribution=block:cyclic
#SBATCH --threads-per-core=1 --sockets-per-node=2 --cores-per-socket=8 -B 2:8:1
#SBATCH --gpu-bind=closest --mem-bind=local --gres-flags=enforce-binding
#SBATCH --cpu-freq=high --gpu-freq=medium
srun ./a.out
