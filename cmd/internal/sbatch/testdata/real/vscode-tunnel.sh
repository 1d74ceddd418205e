#!/bin/bash
#SBATCH --job-name="tunnel"
#SBATCH --time=8:00:00
#SBATCH --gres=gpu:1 --oversubscribe
/usr/sbin/sshd -D -p $PORT -f /dev/null -h ${HOME}/.ssh/vscode-remote-hostkey
