#!/bin/bash
#SBATCH --job-name
#SBATCH --time=10
true
