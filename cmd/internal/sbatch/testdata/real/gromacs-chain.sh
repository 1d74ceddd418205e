#!/bin/bash
#SBATCH --job-name=md_chain
#SBATCH --dependency=singleton
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue

trap 'touch STOP; wait' TERM
gmx mdrun -deffnm prod -cpi prod.cpt -maxh 11.8 &
wait
[ -f prod.gro ] || sbatch "$0"
