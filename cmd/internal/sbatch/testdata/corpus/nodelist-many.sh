#!/bin/bash
#SBATCH --nodelist=gpu[01-02]
true
