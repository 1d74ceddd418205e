#!/bin/sh
#SBATCH --time=3-00
#SBATCH --gres=gpu:tesla:1
#SBATCH --mem-per-cpu=4000M
#SBATCH --cpus-per-task=6
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --output=/home/%u/logs/%j.txt
. /etc/profile
module load python/3.10 cudnn
python -u train_tf.py 2>&1 | tee -a train.log
