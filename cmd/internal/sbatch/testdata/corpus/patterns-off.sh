#!/bin/bash
#SBATCH -o 'a\b%j.out' -e none
#SBATCH --open-mode=append
true
