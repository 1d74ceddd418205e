#!/bin/bash
#SBATCH --uid=1001 --gid=100
#SBATCH --gres=gpu:1
id
