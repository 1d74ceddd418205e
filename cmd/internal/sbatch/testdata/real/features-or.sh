#!/bin/bash
#SBATCH -C "a100|h100"
#SBATCH -G 1
#SBATCH -t 60
python x.py
