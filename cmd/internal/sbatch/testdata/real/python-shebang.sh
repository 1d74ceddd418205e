#!/usr/bin/env python3
#SBATCH --job-name=sweep
#SBATCH --gpus=1
#SBATCH --time=2:00:00
import os
print(os.environ["SLURM_JOB_ID"])
