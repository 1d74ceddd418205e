#!/bin/bash
#SBATCH --job-name jupyter
#SBATCH --gres gpu:1
#SBATCH --time 8:00:00
#SBATCH --mem 16G
#SBATCH --output jupyter-%J.log
port=$(shuf -i8000-9999 -n1)
node=$(hostname -s)
echo "ssh -N -L ${port}:${node}:${port} ${USER}@login"
jupyter lab --no-browser --port=${port} --ip=${node}
