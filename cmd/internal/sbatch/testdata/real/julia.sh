#!/usr/bin/env julia
#SBATCH --gres=gpu:1
#SBATCH --time=00:30:00
#SBATCH --mem=8G
using CUDA
println(CUDA.device())
