#!/bin/bash
#SBATCH --wrap=hostname
true
