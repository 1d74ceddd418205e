#!/bin/bash

# Trains the small model.
   # An indented comment is one, too.
	
#SBATCH --gres=gpu:1

#
#SBATCH --time=5
  #SBATCH --mem=1T
python train.py
