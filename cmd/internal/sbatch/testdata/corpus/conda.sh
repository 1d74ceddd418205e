#!/bin/bash
#SBATCH --job-name=llama-lora
#SBATCH --partition=gpu
#SBATCH --account=nlp
#SBATCH --qos=normal
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=0-08:00:00
#SBATCH --output=%x.%j.log
#SBATCH --error=%x.%j.err
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=ann@example.org

set -euo pipefail
source /opt/conda/etc/profile.d/conda.sh
conda activate llm
export HF_HOME=/scratch/$USER/hf
python finetune.py --config configs/lora.yaml
