#!/bin/bash
#SBATCH -o ~/logs/%j.out
#SBATCH -e ~/logs/%j.err
#SBATCH -D ~/exp
#SBATCH -G1 -t30
python x.py
