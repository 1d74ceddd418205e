#!/bin/bash
#SBATCH -J a\"b --comment=x\\y
#SBATCH -n 2 \
#SBATCH -c 3
true
