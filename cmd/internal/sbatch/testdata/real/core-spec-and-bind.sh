#!/bin/bash
#SBATCH --core-spec=2 --ntasks-per-core=1 --cpu-freq=performance
#SBATCH -B 2:12:1 -m block --gres-flags=enforce-binding
#SBATCH --gres=gpu:1 --time=60
./stream
