#!/bin/bash
#SBATCH -J "a"'b'c --comment=it"'"s
#SBATCH --export="ALL,TAG=nightly build"
true
