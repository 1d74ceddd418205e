#!/bin/bash
#SBATCH --array=0-99
#SBATCH --dependency=aftercorr:900
#SBATCH --gres=gpu:1
python eval.py $SLURM_ARRAY_TASK_ID
