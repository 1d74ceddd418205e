# Adds up what one step of a PyTorch program does: the weights, what autograd
# keeps, the peak, FLOPs. trace.py feeds it; the two files are run as one.
#
# What cannot be accounted for makes the result partial; it never makes the
# user's program fail.
import contextlib
import os
import weakref

VERSION = 1
MAX_NOTES, MAX_TEXT = 8, 200

# What aten operators count as. FLOPs of elementwise operators are those per
# element that the reader of ONNX files counts.
MATRIX = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "matmul", "linear"}
CONV = {"convolution", "_convolution", "convolution_overrideable", "mkldnn_convolution", "cudnn_convolution", "miopen_convolution"}
NORM = {"native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "batch_norm",
        "native_layer_norm", "native_group_norm", "_fused_rms_norm", "rms_norm"}
ACTIVATION = {"relu": 1, "relu_": 1, "sigmoid": 1, "sigmoid_": 1, "tanh": 1, "tanh_": 1, "elu": 1, "elu_": 1, "hardtanh": 1,
              "hardtanh_": 1, "clamp": 1, "clamp_": 1, "gelu": 4, "silu": 4, "silu_": 4, "hardswish": 4, "hardswish_": 4,
              "hardsigmoid": 4, "leaky_relu": 4, "leaky_relu_": 4, "_prelu_kernel": 4, "prelu": 4, "softplus": 4, "mish": 4, "mish_": 4}
COPY = {"clone", "copy_", "_to_copy", "contiguous", "cat", "stack", "fill_", "zero_", "repeat", "constant_pad_nd", "index_select",
        "embedding", "gather", "roll", "_reshape_copy", "_unsafe_view", "new_zeros", "full", "arange", "scalar_tensor"}
SOFTMAX = {"_softmax", "_log_softmax", "_safe_softmax"}
ATTENTION = "_scaled_dot_product_"  # fused kernels, named by backend
BOOKKEEPING = {"detach", "alias", "empty", "empty_strided", "empty_like", "zeros", "ones", "lift_fresh", "_local_scalar_dense"}


class Stop(BaseException):
    """Ends the trace: everything is known. kind is empty or a kind of failure.
    It is no Exception, since programs catch those to go on."""

    def __init__(self, kind="", detail=""):
        super().__init__(detail)
        self.kind, self.detail = kind, detail


def storage_of(t):
    """The storage's address and its size in bytes."""
    if hasattr(t, "untyped_storage"):
        s = t.untyped_storage()
    else:
        s = t.storage()
        s = getattr(s, "_storage", s)
    return s._cdata, int(s.nbytes())


def tensors_in(x, depth=0):
    """The tensors of nested arguments, in order."""
    if isinstance(x, torch.Tensor):
        yield x
    elif depth < 6:
        if isinstance(x, dict):
            x = x.values()
        elif hasattr(x, "__dataclass_fields__"):
            x = vars(x).values()
        elif not isinstance(x, (list, tuple)):
            return
        for v in x:
            yield from tensors_in(v, depth + 1)


class Kept:
    """What a saved-tensor hook leaves in the graph; it goes with the graph."""

    __slots__ = ("tensor", "key", "rec")

    def __init__(self, tensor, key, rec):
        self.tensor, self.key, self.rec = tensor, key, rec

    def __del__(self):
        try:
            self.rec.release_saved(self.key)
        except Exception:  # the interpreter is going down
            pass


class Recorder:
    """Adds up one step. Storages count once, however many tensors share them."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.pid = os.getpid()
        self.depth = 0
        self.phase = "idle"  # forward, backward, after
        self.roots, self.asides, self.optimizers, self.blocks = [], [], [], set()
        self.live, self.live_bytes, self.peak = {}, 0, 0
        self.refs = {}
        self.saved, self.saved_bytes, self.saved_peak = {}, 0, 0
        self.masks = {}
        self.fixed = set()  # storages of weights and buffers
        self.n = dict.fromkeys(("flops", "moved_bytes", "act_bytes", "matrix_bytes", "largest_bytes", "workspace_bytes", "score_bytes",
                                "convs", "linears", "activations", "norms", "others", "input_bytes", "output_bytes",
                                "batch", "seq_len", "width", "blocks"), 0)
        self.notes, self.partial = [], False
        self.autocast = self.checkpointing = self.fake = False
        self.busy, self.sealed = False, 0

    def note(self, text, partial=False):
        self.partial = self.partial or partial
        if text not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(text[:MAX_TEXT])

    def stop(self):
        raise Stop()

    # Live memory.

    def track(self, t):
        """Counts t's storage while any tensor on it lives; true when it is new."""
        key, size = storage_of(t)
        if id(t) in self.refs:
            return False
        entry = self.live.get(key)
        new = entry is None
        if new:
            size = self.masks.get(key, size)
            entry = self.live[key] = [size, 0]
            self.live_bytes += size
            self.peak = max(self.peak, self.live_bytes)
        entry[1] += 1
        self.refs[id(t)] = weakref.ref(t, lambda _, i=id(t), k=key: self.release(i, k))
        return new

    def release(self, ident, key):
        self.refs.pop(ident, None)
        entry = self.live.get(key)
        if entry is None:
            return
        entry[1] -= 1
        if entry[1] == 0:
            del self.live[key]
            self.masks.pop(key, None)
            self.live_bytes -= entry[0]

    def mask(self, t):
        """A dropout mask, which a GPU keeps in a byte and the CPU in a float."""
        key, _ = storage_of(t)
        self.masks[key] = t.numel()
        entry = self.live.get(key)
        if entry is not None and entry[0] > t.numel():
            self.live_bytes -= entry[0] - t.numel()
            entry[0] = t.numel()

    # Saved tensors.

    def pack(self, t):
        held = self.unlike_number(t)
        key, size = storage_of(held)
        if t.grad_fn is not None:  # the graph must not hold itself
            with torch.no_grad():
                held = t.detach()
        if not self.busy and self.roots:
            self.track(held)
        if key not in self.fixed:
            count = self.saved.get(key)
            if count is None:
                count = self.saved[key] = [self.masks.get(key, size), 0]
                self.saved_bytes += count[0]
                self.saved_peak = max(self.saved_peak, self.saved_bytes)
            count[1] += 1
        return Kept(held, key, self)

    def unlike_number(self, t):
        """Python numbers are saved as tensors that no dispatch mode will take."""
        if t.dim() or t.requires_grad or t.dtype not in (torch.float64, torch.int64):
            return t
        try:
            guard = torch._C._DisableTorchDispatch()  # a guard in old versions, a context in new ones
            with guard if hasattr(guard, "__enter__") else contextlib.nullcontext():
                value = t.item()
            del guard
            return torch.scalar_tensor(value, dtype=t.dtype)
        except Exception:  # it has no value, so it was none
            return t

    def release_saved(self, key):
        entry = self.saved.get(key)
        if entry is None:
            return
        entry[1] -= 1
        if entry[1] == 0:
            del self.saved[key]
            self.saved_bytes -= entry[0]

    # Modules.

    def enter(self, module, args, kwargs):
        if self.phase == "backward":
            return  # computed again, for checkpointing
        if self.depth == 0:
            params = list(module.parameters())
            if not params and not self.roots:
                return  # such as a transform of torchvision's
            if self.phase == "after" and params:
                self.stop()  # a second step begins without an optimizer's
            if not self.cfg["inference"] and not torch.is_grad_enabled():
                self.phase = "aside"  # a validation before the first step, or a teacher
                self.asides.append(module)
                self.depth += 1
                return
            if not any(module is r for r in self.roots):
                self.begin(module, params, args, kwargs)
            self.phase = "forward"
        self.depth += 1

    def begin(self, module, params, args, kwargs):
        first = not self.roots
        self.roots.append(module)
        for t in params + list(module.buffers()):
            self.fixed.add(storage_of(t)[0])
            self.track(t)
        inputs = list(tensors_in((args, kwargs)))
        for t in inputs:
            self.track(t)
        if not first:
            return
        self.n["input_bytes"] = sum(t.numel() * t.element_size() for t in inputs)
        self.n["largest_bytes"] = max([t.numel() * t.element_size() for t in inputs] or [0])
        shaped = [t for t in inputs if t.dim() > 0]
        if shaped:
            self.n["batch"] = int(shaped[0].shape[0])
            if shaped[0].dim() == 2 and not shaped[0].dtype.is_floating_point:
                self.n["seq_len"] = int(shaped[0].shape[1])
        self.find_blocks(module)

    def find_blocks(self, module):
        """The longest row of equal submodules that hold attention."""
        best = []
        for m in module.modules():
            if not isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)):
                continue
            row = list(m.children())
            if len(row) < 2 or len(row) <= len(best) or len({type(x) for x in row}) != 1:
                continue
            if any("attention" in type(y).__name__.lower() for y in row[0].modules()):
                best = row
        self.blocks = {id(m) for m in best}
        self.n["blocks"] = len(best)

    def seal(self):
        """What comes now, the optimizer's states, is no part of the peak."""
        self.sealed = self.sealed or self.peak

    def leave(self, module, out):
        if id(module) in self.blocks and not self.n["width"]:
            for t in tensors_in(out):
                if t.dim() > 1:
                    self.n["width"] = int(t.shape[-1])
                break
        if self.depth == 0 and self.roots and module is self.roots[0]:
            self.n["output_bytes"] = sum(t.numel() * t.element_size() for t in tensors_in(out))

    # Operators.

    def op(self, func, args, out):
        name = str(func).split(".")[1] if "." in str(func) else str(func)
        outs = list(tensors_in(out))
        inplace = name.endswith("_")
        new = [t for t in outs if self.track(t)] if self.roots else []
        if outs and name == "bernoulli_" and outs[0].dtype.is_floating_point:
            self.mask(outs[0])
            return
        if outs and name == "div_" and storage_of(outs[0])[0] in self.masks:
            return  # part of the same dropout
        if self.depth == 0 or self.phase != "forward" or self.counted():
            return
        if not new and not inplace or name in BOOKKEEPING or outs[0].dim() == 0:
            return
        size = sum(t.numel() * t.element_size() for t in (outs if inplace else new))
        n = self.n
        n["act_bytes"] += size
        n["moved_bytes"] += size + sum(t.numel() * t.element_size() for t in tensors_in(args))
        n["largest_bytes"] = max([n["largest_bytes"]] + [t.numel() * t.element_size() for t in outs])
        self.classify(name, args, outs, size)

    def counted(self):
        """FLOPs are those of the first forward pass of the first model."""
        return len(self.roots) == 0 or self.phase == "after"

    def classify(self, name, args, outs, size):
        n, elems = self.n, outs[0].numel()
        if name in CONV:
            n["convs"] += 1
            n["matrix_bytes"] += size
            n["flops"] += self.conv(args, outs[0])
        elif name in MATRIX:
            n["linears"] += 1
            n["matrix_bytes"] += size
            a = [t for t in tensors_in(args)]
            inner = a[-1] if name in ("mm", "bmm", "mv", "dot", "matmul", "linear") else a[-2]
            n["flops"] += 2 * elems * int((a[0] if inner is a[-1] else inner).shape[-1])
        elif name.startswith(ATTENTION):
            n["linears"] += 2
            q, k = args[0], args[1]
            n["flops"] += 4 * q.numel() * int(k.shape[-2])
            n["matrix_bytes"] += size
        elif name in NORM:
            n["norms"] += 1
            n["flops"] += 8 * elems
        elif name in ACTIVATION:
            n["activations"] += 1
            n["flops"] += ACTIVATION[name] * elems
        else:
            n["others"] += 1
            n["flops"] += 0 if name in COPY else (5 if name in SOFTMAX else 1) * elems
            if name in SOFTMAX and outs[0].dim() >= 3 and self.n["blocks"]:
                n["score_bytes"] += outs[0].numel() * outs[0].element_size()

    def conv(self, args, out):
        x, w = args[0], args[1]
        stride, dilation = list(args[3]), list(args[5])
        transposed, groups = bool(args[6]), int(args[8])
        kernel = 1
        for k in w.shape[2:]:
            kernel *= int(k)
        if transposed:
            return 2 * x.numel() * int(w.shape[1]) * kernel
        if kernel > 1 and groups == 1:
            square = w.dim() == 4 and tuple(w.shape[2:]) == (3, 3) and set(stride) == {1} and set(dilation) == {1}
            if square and x.shape[1] >= 16:
                scratch = min((x.numel() + out.numel()) // 4 * 9 * x.element_size(), 16 << 30)
            else:
                places = out.numel() // max(1, int(out.shape[1]))
                scratch = min(int(x.shape[1]) * kernel * places * x.element_size(), 512 << 20)
            self.n["workspace_bytes"] = max(self.n["workspace_bytes"], scratch)
        return 2 * out.numel() * int(w.shape[1]) * kernel

    # The answer.

    def report(self):
        if not self.roots:
            raise Stop("no-step", "a step was seen, but before it no model of torch.nn was called")
        params, buffers, seen = [], [], set()
        groups = [p for o in self.optimizers for g in o.param_groups for p in g["params"]]
        for kind, ts in ((params, [p for r in self.roots + self.asides for p in r.parameters()] + groups),
                         (buffers, [b for r in self.roots + self.asides for b in r.buffers()])):
            for t in ts:
                if id(t) not in seen:
                    seen.add(id(t))
                    kind.append(t)
        nbytes = lambda ts: sum(t.numel() * t.element_size() for t in ts)
        stepped = {id(p) for p in groups}
        trained = [p for p in params if p.requires_grad and (p.grad is not None or id(p) in stepped)]
        training = not self.cfg["inference"] and self.phase == "after"
        weights = nbytes(params) + nbytes(buffers)
        n = dict(self.n)
        n.update(v=VERSION, model=type(self.roots[0]).__name__[:64], training=training, params=sum(p.numel() for p in params),
                 param_bytes=weights, trained_bytes=nbytes(trained) if training and len(trained) < len(params) else 0,
                 saved_bytes=self.saved_peak if training else 0, traced_bytes=(self.sealed or self.peak) if training else 0,
                 live_bytes=0 if training else max(0, self.peak - weights), optimizer=self.optimizer(nbytes(trained)) if training else "",
                 precision=self.precision(params), checkpointing=self.checkpointing, framework="pytorch", torch=torch.__version__[:32],
                 mode="fake" if self.fake else "cpu", partial=self.partial, notes=self.notes)
        for f in ("batch", "seq_len"):
            n[f] = self.cfg.get(f) or n[f]
        if not n["batch"]:
            n["batch"] = 1
            self.note("the batch size could not be told; give it with --batch", partial=True)
            n["partial"] = True
        return n

    def precision(self, params):
        if self.cfg.get("precision"):
            return self.cfg["precision"]
        if self.autocast:
            return "amp"
        sizes = {}
        for p in params:
            sizes[p.dtype] = sizes.get(p.dtype, 0) + p.numel()
        kind = max(sizes, key=sizes.get) if sizes else torch.float32
        if kind == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
            return "tf32"
        return {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(kind, "fp32")

    def optimizer(self, trained):
        if self.cfg.get("optimizer"):
            return self.cfg["optimizer"]
        if not self.optimizers:
            self.note("no optimizer was seen; its states are not counted; name it with --optimizer")
            return ""
        o = self.optimizers[-1]
        name = type(o).__name__.lower()
        if name == "sgd":
            return "momentum" if any(g.get("momentum") for g in o.param_groups) else "sgd"
        for known in ("adamw", "adafactor", "adagrad", "rmsprop", "adam"):
            if known in name:
                return known
        states = sum(t.numel() * t.element_size() for s in list(o.state.values()) for t in tensors_in(s))
        self.note("optimizer %s is taken for one that keeps as much" % type(o).__name__, partial=True)
        per = states / max(1, trained)
        return "adamw" if per > 1.5 else "momentum" if per > 0.5 else "sgd"
