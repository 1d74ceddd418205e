#!/bin/bash
#SBATCH --requeue=yes
true
