#!/bin/bash
#SBATCH --job=short --part=gpu --tim=15 --out=x.log
true
