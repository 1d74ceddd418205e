#!/bin/sh
#BERTH --gpu-mem=12gigs
true
