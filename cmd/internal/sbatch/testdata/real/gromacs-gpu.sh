#!/bin/bash
#SBATCH -N1 -n1 -c16 --gres=gpu:1
#SBATCH -t 0-23:59
#SBATCH -J md_0_1
#SBATCH -o gmx.%j.out -e gmx.%j.err
#SBATCH --mail-type=ALL

module load GROMACS
gmx mdrun -deffnm md_0_1 -nb gpu -pme gpu -bonded gpu -ntmpi 1 -ntomp $SLURM_CPUS_PER_TASK -maxh 23.5 -cpi md_0_1.cpt
