#!/bin/bash
#SBATCH --gres=gpu:1 --time=08:00:00 --mem=32G -c 4
#SBATCH --output=jupyter-%j.log
node=$(hostname -s); port=$(shuf -i 8000-9999 -n 1)
echo "ssh -N -L ${port}:${node}:${port} $USER@login"
jupyter lab --no-browser --ip="$node" --port="$port"
