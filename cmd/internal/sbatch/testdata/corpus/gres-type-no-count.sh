#!/bin/bash
#SBATCH --gres=gpu:v100
./bench
