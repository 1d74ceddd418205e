#!/bin/bash
#SBATCH --gres=gpu:1 : --ntasks=4
srun ./coupled
