#!/bin/sh
# properties = {"type": "single", "rule": "train", "local": false, "input": ["data.csv"], "threads": 4}
#SBATCH --parsable
#SBATCH -J smk-train
#SBATCH --gres=gpu:1
#SBATCH -c 4
#SBATCH --mem=12000
cd /home/ann/wf && python -m snakemake --snakefile Snakefile --cores 4 train
