#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --time=1:00:00
#BERTH --image=nvcr.io/nvidia/pytorch:24.05-py3 --mount=/scratch --tmp=8G
python -c 'import torch; print(torch.cuda.get_device_name())'
