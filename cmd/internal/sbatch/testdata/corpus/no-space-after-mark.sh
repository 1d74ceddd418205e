#!/bin/bash
#SBATCH--gres=gpu:1
#SBATCH	--time=5	-c	2
python train.py
