#!/bin/bash
#SBATCH -w n17 -C "a100&nvlink"
#SBATCH -x n[01-04],n09
#SBATCH --reservation=maint
true
