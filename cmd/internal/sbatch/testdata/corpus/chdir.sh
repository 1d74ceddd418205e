#!/bin/bash
#SBATCH -D /scratch/ann/run1
#SBATCH --chdir=/scratch/ann/run2
./a.out
