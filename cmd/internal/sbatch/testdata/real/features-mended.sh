#!/bin/bash
#SBATCH -C a100
#BERTH --gpu-type=A100-SXM4-80GB
#SBATCH -G 1
#SBATCH -t 60
python x.py
