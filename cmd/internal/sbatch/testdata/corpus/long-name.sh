#!/bin/bash
#SBATCH -J project/stage-2/a-very-long-name-that-somebody-made-from-all-of-the-parameters-lr0.001
true
