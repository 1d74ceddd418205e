#!/bin/bash
#SBATCH --job-name=bert-ft
#SBATCH --gpus=1
#SBATCH --mem=32G
#SBATCH --cpus-per-task=6
#SBATCH --time=3:00:00
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=someone@uni.example
#BERTH --model=bert-base-uncased --batch=32 --optimizer=adamw

export HF_HOME=/scratch/$USER/hf TOKENIZERS_PARALLELISM=false
python run_glue.py --model_name_or_path bert-base-uncased --task_name mnli --do_train \
  --per_device_train_batch_size 32 --output_dir out/$SLURM_JOB_ID
