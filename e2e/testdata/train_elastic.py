"""Trains a small network in data parallel under torchrun's elastic agent: workers
start anew whenever nodes come or leave, and go on from the last save.

train_elastic.py DIR STEPS EVERY: every EVERY steps rank 0 saves to DIR/save.pt, and it
writes each step into DIR/steps.log. It says no progress to the cluster, which would take
nodes away again where steps take no longer without: on one machine that goes by its load. It ends after STEPS steps, or, once DIR/end is
there, at the next save."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

folder, steps, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
target = torch.nn.Linear(8, 1)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
saved, step = os.path.join(folder, "save.pt"), 0
if os.path.exists(saved):
    state = torch.load(saved)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
if rank == 0:
    with open(os.path.join(folder, "steps.log"), "a") as log:
        print("start", step, world, file=log)
torch.manual_seed(100 * step + rank)
while step < steps:
    x = torch.randn(64, 8)
    with torch.no_grad():
        y = target(x)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    time.sleep(0.05)
    end = torch.zeros(1)
    if rank == 0:
        with open(os.path.join(folder, "steps.log"), "a") as log:
            print("step", step, world, "%.6f" % loss.item(), file=log)
        if step % every == 0:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, saved + ".new")
            os.replace(saved + ".new", saved)
            end[0] = os.path.exists(os.path.join(folder, "end"))
    dist.broadcast(end, 0)
    if end.item():
        break
if rank == 0:
    with open(os.path.join(folder, "steps.log"), "a") as log:
        print("done", step, world, file=log)
