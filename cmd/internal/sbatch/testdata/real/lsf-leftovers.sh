#!/bin/bash
#BSUB -gpu "num=1"
#BSUB -W 2:00
python x.py
