#!/bin/bash
#SBATCH --mem-per-gpu=16G --cpus-per-gpu=4
./a.out
