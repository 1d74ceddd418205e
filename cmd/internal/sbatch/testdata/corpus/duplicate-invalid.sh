#!/bin/bash
#SBATCH --time=soon
#SBATCH --time=10
true
