#!/bin/bash
#BERTH --gpus=1 --gpu-mem=12gigs
python train.py
