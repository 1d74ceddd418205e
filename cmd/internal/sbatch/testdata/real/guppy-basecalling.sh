#!/bin/bash
#SBATCH --job-name=guppy
#SBATCH --gres=gpu:tesla:2
#SBATCH --time=12:00:00
#SBATCH --mem=16GB
#SBATCH --begin=20:00
#SBATCH --deadline=now+2days
guppy_basecaller -x "cuda:0 cuda:1" -i fast5 -s out -c dna_r9.4.1_450bps_hac.cfg
