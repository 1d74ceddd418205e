#!/bin/bash
#SBATCH --job-name=r_keras
#SBATCH --gres=gpu:1
#SBATCH --mem=10G
#SBATCH --time=3-12
Rscript --vanilla fit.R
