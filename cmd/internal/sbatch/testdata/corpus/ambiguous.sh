#!/bin/bash
#SBATCH --gpu=1
true
