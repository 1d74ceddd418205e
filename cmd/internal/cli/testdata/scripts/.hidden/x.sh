#!/bin/sh
#SBATCH --nope
