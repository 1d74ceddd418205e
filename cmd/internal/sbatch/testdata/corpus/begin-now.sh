#!/bin/bash
#SBATCH --begin=now --nice=100 --priority=5
true
