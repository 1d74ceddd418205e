#!/bin/bash
#SBATCH --gpus=0 -c 4
./cpu_only
