#!/bin/bash
#PBS -N oldname
#PBS -l nodes=4:ppn=8
#BSUB -q normal
#SBATCH --ignore-pbs
#SBATCH -J newname -n 4
mpirun ./a.out
