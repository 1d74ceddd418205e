#!/bin/bash
#SBATCH --mem=1500K
#SBATCH --mem=2gb
#SBATCH --mem=3T
#SBATCH --mem=4096
./a.out
