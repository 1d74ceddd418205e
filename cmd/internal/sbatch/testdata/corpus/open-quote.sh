#!/bin/bash
#SBATCH --job-name="never closed
#SBATCH -G 1
true
