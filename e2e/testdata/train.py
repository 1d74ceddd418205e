# Trains a small network on made-up data and says what it took: the first and
# the last loss, and the memory of its own and CPU time that it has used.
import os
import resource
import sys

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
rows = int(sys.argv[1])
x = torch.randn(rows, 256)
y = torch.sin(x[:, :8]).sum(1, keepdim=True)
net = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
first = last = None
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    last = loss.item()
    first = last if first is None else first
with open("/proc/self/status") as status:
    anon = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
use = resource.getrusage(resource.RUSAGE_SELF)
print("loss", round(first, 4), round(last, 4))
print("anon_mib", anon // 1024)
print("cpu_s", round(use.ru_utime + use.ru_stime, 2))
print("uid", os.getuid(), "read-only" if not os.access("/usr/lib", os.W_OK) else "writable", flush=True)
