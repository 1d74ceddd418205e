#!/bin/bash
#SBATCH --uid=1001 --gid=100
true
