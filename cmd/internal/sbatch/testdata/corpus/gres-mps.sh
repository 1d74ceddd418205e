#!/bin/bash
#SBATCH --gres=mps:50
python infer.py
