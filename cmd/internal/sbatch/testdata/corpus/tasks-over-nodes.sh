#!/bin/bash
#SBATCH -n 16 --ntasks-per-node=4
mpirun ./cfd
