# The models that the profiler runs, each with made-up data. Those of this file
# need torch alone; those of torchvision, timm and transformers are used where
# these are installed, with random weights: nothing is downloaded.
import importlib.util
import json

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 32000


def block(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


def cnn(width):
    parts, cin = [block(3, width, 2)], width
    for stage in range(4):
        cout = width << stage
        parts += [block(cin, cout, 2 if stage else 1), block(cout, cout, 1)]
        cin = cout
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))


def mlp(width, depth):
    layers = [nn.Flatten(), nn.Linear(3 * 32 * 32, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1000))


class LSTM(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(VOCABULARY, width), nn.LSTM(width, width, depth, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


class Layer(nn.Module):
    """A transformer's layer, with PyTorch's own choice of attention kernel."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            hide = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1)
            y = ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).masked_fill(hide, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, s, w))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width, depth, heads, longest=4096):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


# name: family, build, kind of data (an image's side, or 0 for words), middle batch, words a sample.
BUILTIN = {
    "tiny_mlp": ("mlp", lambda: mlp(64, 1), 32, 8, 0),
    "tiny_transformer": ("transformer", lambda: Transformer(32, 2, 2), 0, 2, 16),
    "cnn_small": ("cnn", lambda: cnn(32), 224, 64, 0),
    "cnn_wide": ("cnn", lambda: cnn(96), 224, 64, 0),
    "mlp_deep": ("mlp", lambda: mlp(4096, 8), 32, 512, 0),
    "lstm_lm": ("rnn", lambda: LSTM(1024, 2), 0, 32, 128),
    "transformer_small": ("transformer", lambda: Transformer(512, 6, 8), 0, 16, 512),
    "transformer_base": ("transformer", lambda: Transformer(768, 12, 12), 0, 8, 1024),
    "transformer_large": ("transformer", lambda: Transformer(1280, 24, 20), 0, 4, 1024),
}
# Those with _32 behind their names see images of CIFAR's size.
TORCHVISION = {
    "resnet18": ("resnet", 128), "resnet50": ("resnet", 64), "vgg16": ("vgg", 32), "mobilenet_v2": ("mobilenet", 96),
    "densenet121": ("densenet", 32), "efficientnet_b0": ("efficientnet", 64), "vit_b_16": ("vit", 64), "swin_t": ("swin", 64),
    "convnext_tiny": ("convnext", 64), "regnet_x_3_2gf": ("regnet", 64), "resnext50_32x4d": ("resnext", 64), "squeezenet1_1": ("squeezenet", 128),
    "resnet101": ("resnet", 32), "mobilenet_v3_large": ("mobilenet", 128), "alexnet": ("alexnet", 256), "shufflenet_v2_x1_0": ("shufflenet", 128),
    "resnet18_32": ("resnet", 128), "resnet34_32": ("resnet", 128), "mobilenet_v2_32": ("mobilenet", 128), "efficientnet_b0_32": ("efficientnet", 128),
    "vgg16_32": ("vgg", 128), "fcn_resnet50": ("segmentation", 16), "deeplabv3_resnet50": ("segmentation", 16),
}
TIMM = {"vit_small_patch16_224": ("vit", 96), "mixer_s16_224": ("mixer", 96), "resnetv2_50": ("resnet", 64), "efficientnet_b3": ("efficientnet", 32),
        "inception_v3": ("inception", 64), "xception41": ("xception", 32)}
TRANSFORMERS = {
    "bert_base": ("bert", "BertConfig", "BertForMaskedLM", {}, 16, 512),
    "bert_large": ("bert", "BertConfig", "BertForMaskedLM", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}, 8, 512),
    "distilbert": ("bert", "DistilBertConfig", "DistilBertForMaskedLM", {}, 32, 256),
    "xlnet_base": ("xlnet", "XLNetConfig", "XLNetLMHeadModel", {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}, 8, 256),
    "gpt2": ("gpt2", "GPT2Config", "GPT2LMHeadModel", {}, 8, 1024),
    "gpt2_medium": ("gpt2", "GPT2Config", "GPT2LMHeadModel", {"n_embd": 1024, "n_layer": 24, "n_head": 16}, 4, 1024),
    "gpt2_large": ("gpt2", "GPT2Config", "GPT2LMHeadModel", {"n_embd": 1280, "n_layer": 36, "n_head": 20}, 2, 1024),
    "t5_small": ("t5", "T5Config", "T5ForConditionalGeneration", {}, 16, 512),
    "llama_1b": ("llama", "LlamaConfig", "LlamaForCausalLM",
                 {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "intermediate_size": 5632}, 2, 2048),
}


def catalogue():
    """name: (family, source, middle batch, words a sample) of what can run here."""
    out = {n: (m[0], "torch", m[3], m[4]) for n, m in BUILTIN.items()}
    if importlib.util.find_spec("torchvision"):
        out.update({n: (f, "torchvision", b, 0) for n, (f, b) in TORCHVISION.items()})
    if importlib.util.find_spec("timm"):
        out.update({"timm_" + n: (f, "timm", b, 0) for n, (f, b) in TIMM.items()})
    if importlib.util.find_spec("transformers"):
        out.update({"hf_" + n: (m[0], "transformers", m[4], m[5]) for n, m in TRANSFORMERS.items()})
    return out


def images(batch, side):
    return torch.randn(batch, 3, side, side), torch.zeros(batch, dtype=torch.long)


def words(batch, length, vocabulary):
    ids = torch.randint(0, vocabulary, (batch, length))
    return ids, ids


def build(job):
    """Returns model, input, target and loss(output, target) of a job, on the CPU."""
    name, batch, length = job["model"], job["batch_size"], job["seq_len"]
    if name in BUILTIN:
        _, make, side, _, _ = BUILTIN[name]
        data = images(batch, side) if side else words(batch, length, VOCABULARY)
        return (make(),) + data + (lambda out, y: F.cross_entropy(out.flatten(0, -2), y.flatten()),)
    if name.startswith("timm_"):
        import timm
        return (timm.create_model(name[5:]),) + images(batch, 224) + (F.cross_entropy,)
    if name.startswith("hf_"):
        import transformers
        _, config, kind, options, _, _ = TRANSFORMERS[name[3:]]
        model = getattr(transformers, kind)(getattr(transformers, config)(**options))
        ids, y = words(batch, length, model.config.vocab_size)
        return model, {"input_ids": ids, "labels": y}, y, lambda out, y: out.loss
    from torchvision import models
    if hasattr(models.segmentation, name):
        model = getattr(models.segmentation, name)(weights=None, weights_backbone=None, num_classes=21)
        return (model,) + images(batch, 224) + (lambda out, y: F.cross_entropy(out["out"].mean((2, 3)), y),)
    name, small = name.removesuffix("_32"), name.endswith("_32")
    return (getattr(models, name)(),) + images(batch, 32 if small else 224) + (F.cross_entropy,)


def recompute(model):
    """Turns checkpointing on for the model's repeated parts; false if it has none."""
    from torch.utils.checkpoint import checkpoint
    if hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable()
        return True
    found = False
    for part in list(model.modules()):
        row = list(part.children()) if isinstance(part, (nn.ModuleList, nn.Sequential)) else []
        if len(row) < 2 or len({type(m) for m in row}) != 1 or not list(row[0].children()):
            continue
        for m in row:
            m.forward = (lambda run: lambda *a: checkpoint(run, *a, use_reentrant=False))(m.forward)
        found = True
    return found


def call(model, x):
    return model(**x) if isinstance(x, dict) else model(x)


def traced(text, **_):
    """For the tracer's factory mode: text is a job in JSON."""
    job = json.loads(text)
    torch.manual_seed(0)
    model, x, y, loss = build(job)
    if job["checkpointing"]:
        recompute(model)
    inputs = x if isinstance(x, dict) else (x,)
    return model, inputs, lambda out: loss(out, y), job["optimizer"]
