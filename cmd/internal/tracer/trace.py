# Observes one step of a PyTorch program on the CPU and writes one line of JSON
# about it. It runs inside the user's own Python, as the user, after
# recorder.py, in one namespace with it. It needs torch >= 1.13 and nothing
# else; what later versions offer is found by asking for it.
import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import runpy
import signal
import sys
import threading
import traceback

# Patches. Each leaves what it replaces working.


def watcher(rec):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if args and isinstance(args[0], (int, float)) and str(func).startswith("aten.detach"):
                # A number that autograd saved: it must come back as a tensor.
                return torch.scalar_tensor(args[0], dtype=torch.float64 if isinstance(args[0], float) else torch.int64)
            out = func(*args, **(kwargs or {}))
            if not rec.busy:
                rec.busy = True
                try:
                    rec.op(func, args, out)
                except Exception as e:
                    rec.note("operator %s was not understood (%s)" % (func, type(e).__name__), partial=True)
                finally:
                    rec.busy = False
            return out

    return Watch()


def redirect():
    """A mode that answers every wish for a GPU with the CPU."""
    from torch.overrides import TorchFunctionMode

    def host(v):
        if isinstance(v, torch.device) and v.type == "cuda" or isinstance(v, str) and v.split(":")[0] == "cuda":
            return "cpu"
        return v

    class Redirect(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            name = getattr(func, "__name__", "")
            if name in ("cuda", "pin_memory") and args and isinstance(args[0], torch.Tensor):
                return args[0]
            if "device" in kwargs:
                kwargs["device"] = host(kwargs["device"]) if not isinstance(kwargs["device"], int) else "cpu"
            if name == "to":
                args = (args[0],) + tuple("cpu" if type(a) is int else host(a) for a in args[1:])
            return func(*args, **kwargs)

    return Redirect()


def patch(rec):
    """Puts rec in the way of modules, of autograd and of optimizers."""
    call = torch.nn.Module.__call__

    def module_call(self, *args, **kwargs):
        before, phase = rec.depth, rec.phase
        rec.enter(self, args, kwargs)
        entered = rec.depth > before
        try:
            out = call(self, *args, **kwargs)
        finally:
            rec.depth = before
            if before == 0 and rec.phase == "aside":
                rec.phase = phase
        if entered:
            rec.leave(self, out)
            if before == 0 and rec.cfg["inference"]:
                rec.stop()
        return out

    torch.nn.Module.__call__ = module_call

    def during_backward(fn):
        def run(*args, **kwargs):
            depth, rec.depth, rec.phase = rec.depth, 0, "backward"
            try:
                return fn(*args, **kwargs)
            finally:
                rec.depth, rec.phase = depth, "after"
        return run

    torch.autograd.backward = during_backward(torch.autograd.backward)
    init = torch.optim.Optimizer.__init__

    def optimizer_init(self, *args, **kwargs):
        init(self, *args, **kwargs)
        rec.optimizers.append(self)
        step = type(self).step
        if getattr(step, "_berth", False):
            return

        def stepped(opt, *a, **k):
            if rec.phase == "after":
                rec.seal()
            out = step(opt, *a, **k)
            if rec.phase == "after" and os.getpid() == rec.pid:
                rec.optimizers = [o for o in rec.optimizers if o is not opt] + [opt]
                rec.stop()
            return out

        stepped._berth = True
        type(self).step = stepped

    torch.optim.Optimizer.__init__ = optimizer_init
    patch_surroundings(rec)


def patch_surroundings(rec):
    """Loaders without workers, autocast on the CPU, a word on checkpointing."""
    loader = torch.utils.data.DataLoader.__init__

    def loader_init(self, *args, **kwargs):
        args = args[:5] + (0,) + args[6:] if len(args) > 5 else args
        kwargs.update({k: v for k, v in (("num_workers", 0), ("pin_memory", False)) if k in kwargs})
        for k in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
            kwargs.pop(k, None)
        loader(self, *args, **kwargs)

    torch.utils.data.DataLoader.__init__ = loader_init
    cast = torch.autocast.__init__

    def autocast_init(self, device_type, dtype=None, enabled=True, **kwargs):
        if device_type == "cuda":
            device_type, dtype = "cpu", torch.bfloat16
        rec.autocast = rec.autocast or bool(enabled)
        cast(self, device_type, dtype=dtype, enabled=enabled, **kwargs)

    torch.autocast.__init__ = autocast_init
    import torch.utils.checkpoint as cp
    function = cp.checkpoint

    def checkpoint(*args, **kwargs):
        rec.checkpointing = True
        return function(*args, **kwargs)

    cp.checkpoint = checkpoint
    fuse_attention(torch.nn.functional)
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *a, **k: None
    torch.nn.Module.cuda = lambda self, *a, **k: self


def fuse_attention(functional):
    """Has attention with dropout computed as without: the CPU would keep its scores and their mask, a GPU's fused kernels keep neither.
    On an H200 GPT-2 at batch 8 took 15.0 GiB of tensors, and by a trace with the scores 25.7."""
    whole = getattr(functional, "scaled_dot_product_attention", None)
    if whole is None:  # before PyTorch 2
        return

    def fused(query, key, value, attn_mask=None, dropout_p=0.0, *rest, **more):
        return whole(query, key, value, attn_mask, 0.0, *rest, **more)

    functional.scaled_dot_product_attention = fused


# Running.


def emit(cfg, answer):
    """Writes the one line of the answer and nothing after it."""
    line = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(cfg["result_fd"], line):]


def fail(kind, detail):
    return {"v": VERSION, "error": kind, "detail": str(detail)[:2000]}


def watch_life(fd):
    """Ends the whole process group when berth, which holds the other end, dies."""
    os.set_inheritable(fd, False)

    def run():
        while os.read(fd, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=run, daemon=True).start()


def limit(cfg):
    """Bounds memory and makes this process the first to go when it is short."""
    import resource
    if cfg.get("memory_bytes"):
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        want = cfg["memory_bytes"] if hard == resource.RLIM_INFINITY else min(hard, cfg["memory_bytes"])
        resource.setrlimit(resource.RLIMIT_AS, (want, want))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")
    with contextlib.suppress(OSError):
        os.nice(10)


def place(exc, where):
    """The line of the user's own file at which exc was raised."""
    found = ""
    for frame in traceback.extract_tb(exc.__traceback__):
        if frame.filename == where or not found and not frame.filename.startswith("<"):
            found = "%s:%d: " % (frame.filename, frame.lineno)
    return found + "%s: %s" % (type(exc).__name__, exc)


def run_script(cfg, rec):
    script = cfg["target"]
    sys.argv = [script] + cfg["args"]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    rec.stop = lambda: finish(cfg, rec)
    patch(rec)
    try:
        with watcher(rec), redirect(), torch.autograd.graph.saved_tensors_hooks(rec.pack, lambda k: k.tensor):
            runpy.run_path(script, run_name="__main__")
        end = "the script ended"
    except SystemExit as e:
        end = "the script ended" if e.code in (None, 0) else "the script exited with %s" % (e.code,)
    except KeyboardInterrupt:
        end = "the script was interrupted"
    except MemoryError as e:
        return fail("memory", place(e, script))
    except BaseException as e:
        kind = "memory" if isinstance(e, RuntimeError) and "allocate memory" in str(e) else "crash"
        return fail(kind, place(e, script))
    if rec.phase == "after":
        return rec.report()
    if rec.asides or rec.phase == "forward":
        return fail("no-step", end + " after calling a model, but before any backward pass; for inference give --inference")
    return fail("no-step", end + " before any model of PyTorch was called")


def finish(cfg, rec):
    """Ends a script where it stands: it may catch exceptions, not this."""
    try:
        answer = rec.report()
    except Stop as e:
        answer = fail(e.kind, e.detail)
    except BaseException as e:
        answer = fail("tracer", "%s: %s" % (type(e).__name__, e))
    emit(cfg, answer)
    os._exit(0)


def load_factory(spec):
    """The function that 'module:function' or 'file.py:function' names."""
    name, _, attr = spec.rpartition(":")
    sys.path[0] = os.getcwd()
    if name.endswith(".py"):
        sys.path[0] = os.path.dirname(os.path.abspath(name))
        s = importlib.util.spec_from_file_location("berth_factory", name)
        module = importlib.util.module_from_spec(s)
        sys.modules["berth_factory"] = module
        s.loader.exec_module(module)
    else:
        module = importlib.import_module(name)
    for part in attr.split("."):
        module = getattr(module, part)
    return module


def call_factory(cfg, function):
    """Calls function with what it takes of batch, seq_len and args."""
    want = {k: cfg[k] for k in ("batch", "seq_len") if cfg.get(k)}
    try:
        takes = inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes = {}
    if not any(p.kind == p.VAR_KEYWORD for p in takes.values()):
        want = {k: v for k, v in want.items() if k in takes}
    got = function(*cfg["args"], **want)
    got = tuple(got) if isinstance(got, (tuple, list)) else (got,)
    if len(got) < 2 or len(got) > 4 or not isinstance(got[0], torch.nn.Module):
        raise TypeError("the factory must return (model, inputs[, loss_fn[, optimizer]])")
    return got + (None,) * (4 - len(got))


def move(x, change):
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, dict):
        return {k: move(v, change) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return tuple(move(v, change) for v in x)
    return x


def step(cfg, rec, model, inputs, loss_fn):
    """One forward pass, and one backward unless it is for inference."""
    model.train(not cfg["inference"])
    amp = cfg.get("precision") == "amp"
    with contextlib.ExitStack() as stack:
        if cfg["inference"]:
            stack.enter_context(torch.no_grad())
        if amp:
            stack.enter_context(torch.autocast("cuda"))
        if isinstance(inputs, dict):
            out = model(**inputs)
        else:
            out = model(*(inputs if isinstance(inputs, (list, tuple)) else (inputs,)))
        if cfg["inference"]:
            raise Stop()
        if loss_fn is not None:
            loss = loss_fn(out)
        elif getattr(out, "loss", None) is not None:
            loss = out.loss
        else:
            parts = [t.float().sum() for t in tensors_in(out) if t.requires_grad]
            loss = sum(parts[1:], parts[0])
    loss.backward()


def trace_factory(cfg, rec, fake):
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(cfg.get("precision"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(redirect())
        if fake is not None:
            stack.enter_context(fake)
            rec.fake = True
        model, inputs, loss_fn, opt = call_factory(cfg, cfg["function"])
        if dtype is not None:
            model = model.to(dtype)
            inputs = move(inputs, lambda t: t.to(dtype) if t.dtype.is_floating_point else t)
        stack.enter_context(watcher(rec))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(rec.pack, lambda k: k.tensor))
        with contextlib.suppress(Stop):
            step(cfg, rec, model, inputs, loss_fn)
        if isinstance(opt, str) and not cfg.get("optimizer"):
            cfg["optimizer"] = opt
        answer = rec.report()
    answer["model"] = type(model).__name__[:64]
    return answer


def fake_mode():
    """Tensors without values, where this torch has them."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError:
        return None
    if "allow_non_fake_inputs" in inspect.signature(FakeTensorMode.__init__).parameters:
        return FakeTensorMode(allow_non_fake_inputs=True)
    return FakeTensorMode()


def run_factory(cfg, make):
    rec = make()
    patch(rec)
    try:
        cfg["function"] = load_factory(cfg["target"])
    except BaseException as e:
        return fail("factory", "%s cannot be loaded: %s: %s" % (cfg["target"], type(e).__name__, e))
    mode = fake_mode() if cfg["fake"] else None
    if mode is not None:
        try:
            return trace_factory(cfg, rec, mode)
        except Exception as e:
            rec.__init__(cfg)
            why = (str(e).splitlines() or [""])[0]
            rec.note("computed with real values, since shapes alone did not do (%s: %s)" % (type(e).__name__, why))
    try:
        return trace_factory(cfg, rec, None)
    except MemoryError as e:
        return fail("memory", place(e, cfg["target"]))
    except BaseException as e:
        return fail("crash", place(e, cfg["target"].rpartition(":")[0]))


def main(cfg):
    global torch
    if cfg.get("life_fd") is not None:
        watch_life(cfg["life_fd"])
    os.set_inheritable(cfg["result_fd"], False)
    limit(cfg)
    try:
        import torch
        import torch.utils.data
        import torch.utils.checkpoint
    except BaseException as e:
        emit(cfg, fail("no-torch", "%s has no working torch: %s: %s" % (sys.executable, type(e).__name__, e)))
        return
    run = run_factory if cfg["factory"] else lambda c, make: run_script(c, make())
    try:
        answer = run(cfg, lambda: Recorder(cfg))
    except Stop as e:
        answer = fail(e.kind or "no-step", e.detail or "nothing was seen")
    except BaseException as e:
        answer = fail("tracer", "%s: %s" % (type(e).__name__, e))
    emit(cfg, answer)
    sys.stdout.flush()
    os._exit(0)  # whatever threads the program has started


if __name__ == "berth_trace":
    main(json.loads(sys.argv[1]))
