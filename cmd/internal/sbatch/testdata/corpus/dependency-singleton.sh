#!/bin/bash
#SBATCH -J nightly -d singleton
#SBATCH --gpus=1
./nightly.sh
