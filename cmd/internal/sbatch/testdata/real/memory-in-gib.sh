#!/bin/bash
#SBATCH --mem=64GiB
#SBATCH --gres=gpu:1 --time=5
python x.py
