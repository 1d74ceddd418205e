#!/bin/bash
#SBATCH --exclusive -n 24
./cpu_bench
