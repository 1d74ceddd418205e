#!/bin/sh
#SBATCH --gpus=1 --time=10
python eval.py
