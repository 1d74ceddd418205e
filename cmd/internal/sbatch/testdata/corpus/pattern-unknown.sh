#!/bin/bash
#SBATCH -o run-%y-%j.out --open-mode=truncate
true
