#!/bin/sh
#SBATCH --gpus=1
