#!/bin/bash
set -euo pipefail
#SBATCH --gres=gpu:4
#SBATCH --time=2-00:00:00
python x.py
