#!/bin/bash
#SBATCH -a 0-1199:10
#SBATCH -J render
#SBATCH --gres=gpu:rtx4090:1
#SBATCH -t 1:00:00
#SBATCH -o /scratch/%u/render/%A/%a.log
first=$SLURM_ARRAY_TASK_ID
blender -b scene.blend -E CYCLES -s $first -e $((first + 9)) -a -- --cycles-device OPTIX
