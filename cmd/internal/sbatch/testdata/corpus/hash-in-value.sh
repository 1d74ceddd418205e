#!/bin/bash
#SBATCH -J run#7
#SBATCH --comment="issue #7"
true
