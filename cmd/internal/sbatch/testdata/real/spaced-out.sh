#!/bin/bash
#SBATCH   --job-name=spaced    --gres=gpu:1
#SBATCH	--time=10	--mem=4G
#SBATCH    -c    4
   
	# an indented comment
python x.py
