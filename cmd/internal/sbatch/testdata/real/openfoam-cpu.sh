#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=48
#SBATCH --exclusive
#SBATCH --time=2-00:00:00
#SBATCH --mem=0
source /opt/openfoam/etc/bashrc
mpirun simpleFoam -parallel
