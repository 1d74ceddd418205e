# An ordinary training script, with workers, a device and a loop.
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--optimizer", default="adam")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr),
        "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9), "rmsprop": torch.optim.RMSprop}
optimizer = make[args.optimizer](model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
data = DataLoader(TensorDataset(torch.randn(256, 64), torch.zeros(256, dtype=torch.long)), args.batch, num_workers=2,
                  prefetch_factor=2, persistent_workers=True, pin_memory=True)
while True:  # the tracer must end it
    for x, y in data:
        x, y = x.to(device, non_blocking=True), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(float(loss))
    schedule.step()
