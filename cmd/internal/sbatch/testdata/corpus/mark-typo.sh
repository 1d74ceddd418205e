#!/bin/bash
#SBATCHES --gres=gpu:1
python train.py
