#!/bin/bash
#SBATCH -G1 -c4 -t5 -N1 -Jquick
#SBATCH -Qvo out.%j
python quick.py
