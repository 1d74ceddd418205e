#!/bin/bash
#SBATCH -N 1-4 -n 4
./mpi_hello
