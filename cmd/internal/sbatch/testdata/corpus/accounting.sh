#!/bin/bash
#SBATCH -A proj1 -q high --wckey=exp7 --acctg-freq=30 --profile=all
#SBATCH -L matlab:1 --tmp=20G -M cluster2 --mcs-label=x
true
