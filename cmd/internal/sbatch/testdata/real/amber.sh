#!/bin/bash
#SBATCH --job-name="prod 1"
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --mem=4gb
#SBATCH --time=48:00:00
#SBATCH --output="prod %j.out"
pmemd.cuda -O -i prod.in -o prod.out -p sys.prmtop -c heat.rst -r prod.rst -x prod.nc
