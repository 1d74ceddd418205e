#!/bin/bash
#SBATCH --gres=gpu:1,nvme:200
cp data.tar $TMPDIR && python train.py
