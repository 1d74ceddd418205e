# One script, many ways to behave: python cases.py WAY.
import os
import subprocess
import sys
import time

way = sys.argv[1]
if way == "print":
    print("no torch in here")
    sys.exit(0)
if way == "spin":
    while True:
        pass
if way == "exit":
    sys.exit(7)
if way == "die":
    os.kill(os.getpid(), 11)
if way == "garbage":
    os.write(4, b"[1, 2\n")
    time.sleep(3600)
if way == "children":
    a = subprocess.Popen(["sleep", "3600"])
    b = os.fork()
    if b == 0:
        while True:
            time.sleep(1)
    with open(sys.argv[2] + ".new", "w") as f:
        f.write("%d %d\n" % (a.pid, b))
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    if len(sys.argv) > 3:
        time.sleep(3600)
    sys.exit(0)
if way == "memory":
    x = bytearray(1 << 45)

import torch
from torch import nn

if way == "stubborn":  # catches whatever it can
    model = nn.Linear(4, 4)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        try:
            model(torch.randn(2, 4)).sum().backward()
            opt.step()
        except BaseException:
            pass
if way == "cuda":
    model = nn.Linear(8, 8).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.ones(4, 8, device="cuda:0")
    y = torch.zeros(4, 8).cuda(non_blocking=True).to("cuda")
    loss = ((model(x.to(torch.device("cuda", 0))) - y) ** 2).mean()
    loss.backward()
    torch.cuda.synchronize()
    opt.step()
if way == "amp":
    model = nn.Linear(64, 64).cuda()
    opt = torch.optim.AdamW(model.parameters())
    scaler = torch.cuda.amp.GradScaler()
    with torch.cuda.amp.autocast():
        loss = model(torch.ones(4, 64).cuda()).float().sum()
    scaler.scale(loss).backward()
    scaler.step(opt)
if way == "frozen":  # as adapters do
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 8))
    model[0].requires_grad_(False)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    model(torch.ones(4, 32)).sum().backward()
    opt.step()
if way == "accumulate":
    model = nn.Linear(8, 8)
    opt = torch.optim.Adam(model.parameters())
    while True:
        model(torch.ones(4, 8)).sum().backward()
if way == "own-optimizer":
    class Mine(torch.optim.Optimizer):
        def step(self):
            for g in self.param_groups:
                for p in g["params"]:
                    self.state[p]["a"] = torch.zeros_like(p)
                    self.state[p]["b"] = torch.zeros_like(p)
    model = nn.Linear(8, 8)
    opt = Mine(model.parameters(), {})
    model(torch.ones(4, 8)).sum().backward()
    opt.step()
if way == "forward":
    nn.Linear(8, 8)(torch.ones(4, 8))
if way == "shape":
    nn.Linear(8, 8)(torch.ones(4, 9))
if way == "validate":  # before the first step, and beside a teacher
    model, teacher = nn.Linear(8, 8), nn.Linear(8, 4)
    opt = torch.optim.RMSprop(model.parameters())
    with torch.no_grad():
        model(torch.ones(32, 8))
        teacher(torch.ones(4, 8))
    model(torch.ones(4, 8)).sum().backward()
    opt.step()
if way == "function":
    w = torch.ones(4, 4, requires_grad=True)
    opt = torch.optim.SGD([w], lr=0.1)
    (torch.ones(3, 4) @ w).sum().backward()
    opt.step()
