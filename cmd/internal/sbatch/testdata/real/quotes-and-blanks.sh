#!/bin/bash
#SBATCH --job-name "my job"
#SBATCH --comment='it is "quoted"'
#SBATCH --output="out dir/%j.txt"
#SBATCH --export=ALL,MSG="a b"
#SBATCH -G 1
./run
