# One run of one model, in a process of its own: python worker.py JOB-IN-JSON.
# It reports on standard output, one JSON object a line, and waits on standard
# input: for "begin" before it touches the GPU, so that it can import libraries
# and make its model while another run is measured; for "go" before the measured
# part; and for "bye" before it ends, so that the memory of a live process can
# be read.
import json
import os
import resource
import sys
import time


def main():
    job = json.loads(sys.argv[1])
    channel = os.fdopen(os.dup(1), "w", 1)
    os.dup2(2, 1)  # what libraries print goes to standard error

    def tell(**what):
        channel.write(json.dumps(what) + "\n")

    import torch
    try:
        run(job, torch, tell)
    except Exception as e:  # out of memory has a type only in newer versions
        text = "%s: %s" % (type(e).__name__, e)
        oom = "out of memory" in text.lower() or "can't allocate memory" in text.lower() or isinstance(e, MemoryError)
        tell(event="failed", oom=oom, error=text[:300], **versions(torch), **memory(torch, job))


def versions(torch):
    return {"torch": torch.__version__, "cuda": torch.version.cuda or ""}


def memory(torch, job):
    out = {"host_mem_mib": peak_rss()}
    if job["device"] == "cuda" and torch.cuda.is_initialized():
        out.update(allocator_peak_mib=torch.cuda.max_memory_allocated() / 2**20, reserved_peak_mib=torch.cuda.max_memory_reserved() / 2**20)
    return out


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def prepare(job, torch):
    """Returns a function that does one step; None when told to end before it began."""
    import workloads
    device, precision = job["device"], job["precision"]
    torch.manual_seed(0)
    model, x, y, loss_of = workloads.build(job)
    if sys.stdin.readline().strip() != "begin":
        return None
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    if job["checkpointing"] and not workloads.recompute(model):
        raise ValueError("the model has no repeated parts to compute again")
    move = lambda t: t.to(device, torch.bfloat16) if precision == "bf16" and t.dtype.is_floating_point else t.to(device)
    model = model.to(device, torch.bfloat16) if precision == "bf16" else model.to(device)
    x, y = {k: move(v) for k, v in x.items()} if isinstance(x, dict) else move(x), move(y)
    half = torch.float16 if device == "cuda" else torch.bfloat16
    cast = lambda: torch.autocast(device, dtype=half, enabled=precision == "amp")
    if job["mode"] == "inference":
        model.eval()

        def infer():
            with torch.no_grad(), cast():
                workloads.call(model, x)

        return infer
    model.train()
    make = {"sgd": lambda p: torch.optim.SGD(p, 1e-3), "momentum": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9),
            "adam": lambda p: torch.optim.Adam(p, 1e-4), "adamw": lambda p: torch.optim.AdamW(p, 1e-4)}
    optimizer = make[job["optimizer"]](model.parameters())
    scaler = torch.cuda.amp.GradScaler(enabled=precision == "amp" and device == "cuda")

    def train():
        optimizer.zero_grad(set_to_none=True)
        with cast():
            loss = loss_of(workloads.call(model, x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return train


def run(job, torch, tell):
    sync = torch.cuda.synchronize if job["device"] == "cuda" else lambda: None
    step = prepare(job, torch)
    if step is None:
        return
    for _ in range(job["warmup"]):
        step()
    sync()
    tell(event="ready")
    if sys.stdin.readline().strip() != "go":
        return
    times, used, begin = [], time.process_time(), time.perf_counter()
    end = begin + job["seconds"]
    while len(times) < job["min_steps"] or time.perf_counter() < end:
        t = time.perf_counter()
        step()
        sync()
        times.append(time.perf_counter() - t)
    took = time.perf_counter() - begin
    cpu = 100 * (time.process_time() - used) / took
    times.sort()
    tell(event="done", steps=len(times), seconds=took, step_time_s=times[len(times) // 2], step_time_p90_s=times[min(len(times) - 1, len(times) * 9 // 10)],
         cpu_pct=cpu, **versions(torch), **memory(torch, job))
    sys.stdin.readline()


if __name__ == "__main__":
    main()
