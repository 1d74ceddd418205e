#!/bin/bash
#SBATCH -A lab1 -p gpu -q long -N1 -n1 -c24 --mem=250G -t 7-00:00:00 --gres=gpu:1 -J soup -o soup.%j -e soup.%j --mail-type=END --mail-user=a@b.example -H --nice=50 --no-requeue --comment=soup
python x.py
