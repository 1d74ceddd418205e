#!/bin/bash
#SBATCH --parsable --wait --test-only --verbose
true
