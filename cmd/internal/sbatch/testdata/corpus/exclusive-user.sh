#!/bin/bash
#SBATCH --exclusive=user -G 1
#SBATCH -s
python bench.py
