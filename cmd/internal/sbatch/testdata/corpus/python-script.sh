#!/usr/bin/env python3
#SBATCH --gres=gpu:1
#SBATCH --time=20
#SBATCH --output=py-%j.out
import torch
print(torch.cuda.get_device_name())
