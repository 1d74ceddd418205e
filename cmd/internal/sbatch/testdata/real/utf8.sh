#!/bin/bash
#SBATCH --job-name=größe-θ
#SBATCH --comment="Übung № 3 – 訓練"
#SBATCH --gres=gpu:1
# Kommentar: führt das Training aus
python trainiere.py --ausgabe "/daten/ergebnisse/größe"
