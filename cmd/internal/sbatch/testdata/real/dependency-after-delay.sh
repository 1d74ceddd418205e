#!/bin/bash
#SBATCH -d after:4711+30
#SBATCH -G1
python monitor.py
