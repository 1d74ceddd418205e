#!/bin/bash
#SBATCH -o %u/%x-%04j-%N.%%.out -e err.%J.%s.%t.%n
#SBATCH -i in.%A_%a
cat
