#!/bin/bash
#SBATCH --time=90:90
#SBATCH --time=1-30
#SBATCH --time=2-0:30
#SBATCH --time=0
#SBATCH --time=UNLIMITED
#SBATCH --time=00:00:01
true
