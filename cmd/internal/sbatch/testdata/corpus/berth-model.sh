#!/bin/bash
#BERTH --model resnet50 --batch 64 --steps 20000 --optimizer adamw
python train.py
