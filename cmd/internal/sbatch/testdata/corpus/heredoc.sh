#!/bin/bash
#SBATCH --gres=gpu:1

cat > child.sh <<'EOS'
#!/bin/bash
#SBATCH --gres=gpu:8
#SBATCH --nodes=4
python big.py
EOS
python make_child.py
