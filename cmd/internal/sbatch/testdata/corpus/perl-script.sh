#!/usr/bin/perl -w
#SBATCH -n 1 -t 5
use strict;
print "host ", `hostname`;
