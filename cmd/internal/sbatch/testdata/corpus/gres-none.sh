#!/bin/bash
#SBATCH --gres=none
#SBATCH -n 8
make -j8
