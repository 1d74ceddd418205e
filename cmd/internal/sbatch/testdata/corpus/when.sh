#!/bin/bash
#SBATCH --begin=now+2hours --deadline=2030-01-01
#SBATCH -H
true
