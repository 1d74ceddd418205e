#!/bin/bash
#SBATCH --gpus=1 --mem=16G --time=90
#SBATCH --get-user-env
#SBATCH --export=NONE
micromamba run -n env python main.py
