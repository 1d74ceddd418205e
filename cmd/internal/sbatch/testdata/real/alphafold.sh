#!/bin/bash
#SBATCH --job-name=af2
#SBATCH --account=structbio
#SBATCH --qos=gpu-long
#SBATCH --gres=gpu:a100:1,tmpdisk:200G
#SBATCH --cpus-per-task=8
#SBATCH --mem=85G
#SBATCH --time=1-00:00:00
#SBATCH --tmp=200G
export TF_FORCE_UNIFIED_MEMORY=1 XLA_PYTHON_CLIENT_MEM_FRACTION=4.0
singularity run --nv -B /db/af:/data alphafold.sif --fasta_paths=$1 --max_template_date=2022-01-01 --output_dir=$PWD/out
