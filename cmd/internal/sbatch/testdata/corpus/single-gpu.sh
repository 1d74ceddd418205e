#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=02:00:00
#SBATCH --output=logs/%x-%j.out

source ~/venv/bin/activate
python mnist.py --epochs 20
