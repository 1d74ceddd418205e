#!/usr/bin/env bash
#SBATCH --account=proj_0042
#SBATCH --job-name=ds-zero3
#SBATCH --partition=a100,h100
#SBATCH --nodes=2
#SBATCH --gpus-per-node=a100:8
#SBATCH --cpus-per-gpu=8
#SBATCH --mem-per-gpu=120G
#SBATCH --time=24:00:00
#SBATCH --constraint="ib&nvlink"

function makehostfile() {
perl -e '$slots=8; @nodes = split /\n/, qx[scontrol show hostnames $ENV{"SLURM_JOB_NODELIST"}];
print map { "$_ slots=$slots\n" } @nodes'
}
makehostfile > hostfile
deepspeed --hostfile hostfile --master_addr $(head -1 hostfile | cut -d' ' -f1) run_clm.py --deepspeed ds_zero3.json
