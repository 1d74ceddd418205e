#!/bin/bash
#SBATCH --gres=gpu:a100:1,gpu:v100:1
./compare
