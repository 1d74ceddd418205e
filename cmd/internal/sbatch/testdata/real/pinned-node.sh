#!/bin/bash
#SBATCH --nodelist=gpu07
#SBATCH --gres=gpu:2
#SBATCH --time=60
nvidia-smi topo -m
