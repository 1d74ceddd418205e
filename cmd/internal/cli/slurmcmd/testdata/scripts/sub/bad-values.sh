#!/bin/sh
#SBATCH --gres=gpu:17
#BERTH --gpu-mem=4G
true
