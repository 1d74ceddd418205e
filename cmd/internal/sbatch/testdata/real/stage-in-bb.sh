#!/bin/bash
#SBATCH --bb="capacity=100GB pool=ssd"
#SBATCH --gres=gpu:1
python x.py
