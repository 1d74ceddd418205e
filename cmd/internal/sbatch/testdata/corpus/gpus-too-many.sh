#!/bin/bash
#SBATCH --gres=gpu:17
true
