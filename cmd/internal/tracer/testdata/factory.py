# Functions for --factory.
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def conv(batch=4):
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(),
                          nn.Linear(16 * 16 * 16, 10))
    return model, torch.randn(batch, 3, 32, 32)


class Deep(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.again = again
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4))

    def forward(self, x):
        for p in self.parts:
            x = checkpoint(p, x) if self.again else p(x)
        return x


def plain(batch=8):
    return Deep(False), torch.randn(batch, 64, requires_grad=True)


def checkpointed(batch=8):
    return Deep(True), torch.randn(batch, 64, requires_grad=True)


def attention(batch=2, seq_len=16):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.5)
    model = nn.Sequential(nn.Embedding(100, 32), nn.TransformerEncoder(layer, 3), nn.Linear(32, 100))
    ids = torch.zeros(batch, seq_len, dtype=torch.long)
    return model, (ids,), lambda out: nn.functional.cross_entropy(out.flatten(0, 1), ids.flatten()), "adamw"


def recurrent(batch=4, seq_len=12):
    model = nn.LSTM(16, 32, 2, batch_first=True)
    return model, torch.randn(batch, seq_len, 16)


def nothing():
    return "no model"


def broken(batch=1):
    raise ValueError("broken on purpose")
