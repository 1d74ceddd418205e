#!/bin/bash
#SBATCH -J nf-BASECALL_(sample_1)
#SBATCH -o /scratch/nf/ab/cd1234/.command.log
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -c 8
#SBATCH -t 08:00:00
#SBATCH --mem 32768M
#SBATCH -p gpu
#SBATCH --gres=gpu:1
NXF_CHDIR=/scratch/nf/ab/cd1234
set -e
bash /scratch/nf/ab/cd1234/.command.run
