#!/bin/bash
#SBATCH --gres=gpu:2 --gpus=4
true
