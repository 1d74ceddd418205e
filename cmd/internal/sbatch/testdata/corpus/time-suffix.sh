#!/bin/bash
#SBATCH --time=2h
true
