#!/usr/bin/env python3
# Measures what training and inference take on this machine's GPU and writes one
# row of CSV for each run; see README.md for the columns. A run is a process of
# its own. Rows that the file has already are skipped, so that an interrupted
# sweep goes on where it was.
import argparse
import collections
import concurrent.futures
import contextlib
import csv
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time

import gauge

HERE = os.path.dirname(os.path.abspath(__file__))

KEY = ["kind", "gpu", "model", "mode", "batch_size", "seq_len", "precision", "optimizer", "checkpointing", "sharing", "partner"]
TRACED = ["params", "param_bytes", "trained_bytes", "saved_bytes", "traced_bytes", "live_bytes", "largest_bytes", "input_bytes", "output_bytes",
          "workspace_bytes", "moved_bytes", "act_bytes", "matrix_bytes", "score_bytes", "flops", "blocks", "width", "convs", "linears",
          "activations", "norms", "others"]
MEASURED = ["peak_mem_mib", "device_peak_mem_mib", "device_base_mem_mib", "allocator_peak_mib", "reserved_peak_mib", "gpu_util_pct", "mem_util_pct",
            "util_samples", "sample_gap_s", "step_time_s", "step_time_p90_s", "steps", "seconds", "power_w", "energy_per_step_j", "host_mem_mib",
            "cpu_pct", "exclusive_step_time_s", "normalized_speed", "oom", "error"]
COLUMNS = KEY + ["family", "source", "gpu_mem_mib", "driver", "torch", "cuda", "unix_time"] + MEASURED + TRACED


def tracer_source():
    """The tracer's Python files: beside this one, or in the source tree."""
    for where in (HERE, os.path.join(HERE, "..", "..", "cmd", "internal", "tracer")):
        files = [os.path.join(where, f) for f in ("recorder.py", "trace.py")]
        if all(os.path.exists(f) for f in files):
            return "\n".join(open(f).read() for f in files)
    return None


def say(*what):
    print("measure:", *what, file=sys.stderr, flush=True)


class Table:
    """The CSV file: read for what is done, written and synced a row at a time."""

    def __init__(self, name):
        self.rows = {}
        keep = 0
        if os.path.exists(name) and os.path.getsize(name):
            with open(name, newline="") as f:
                text = f.read()
            keep = text.rfind("\n") + 1  # a row cut off by a crash goes
            lines = csv.DictReader(text[:keep].splitlines())
            if lines.fieldnames != COLUMNS:
                raise SystemExit("measure: %s has other columns than this version writes; name another file with --out" % name)
            for r in lines:
                self.rows[self.key(r)] = r
        self.f = open(name, "a", newline="")
        self.f.truncate(len(text[:keep].encode()) if keep else 0)
        self.out = csv.DictWriter(self.f, COLUMNS)
        if not keep:
            self.out.writeheader()
            self.sync()

    @staticmethod
    def key(row):
        return tuple(str(row[k]) for k in KEY)

    def add(self, row):
        row = {c: self.text(row.get(c)) for c in COLUMNS}
        self.rows[self.key(row)] = row
        self.out.writerow(row)
        self.sync()

    @staticmethod
    def text(v):
        if v is None:
            return ""
        if isinstance(v, bool):
            return int(v)
        return "%.6g" % v if isinstance(v, float) else v

    def sync(self):
        self.f.flush()
        os.fsync(self.f.fileno())


class Worker:
    """A run in a process group of its own."""

    def __init__(self, job, env=None):
        self.log = tempfile.TemporaryFile()
        self.p = subprocess.Popen([sys.executable, os.path.join(HERE, "worker.py"), json.dumps(job)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=self.log, env=env, start_new_session=True)
        self.buffer = b""

    def hear(self, deadline):
        """The next message; one of a failure when there is none in time."""
        with selectors.DefaultSelector() as s:
            s.register(self.p.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not s.select(max(0, deadline - time.monotonic())):
                    return {"event": "failed", "error": "no answer in time", "oom": False}
                got = os.read(self.p.stdout.fileno(), 1 << 16)
                if not got:
                    return self.ended()
                self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def ended(self):
        code = self.p.wait()
        self.log.seek(0)
        words = self.log.read().decode(errors="replace").strip().splitlines()[-1:] or [""]
        # Killed without a word: on Linux that is the kernel, short of host memory.
        return {"event": "failed", "oom": code == -signal.SIGKILL, "error": ("ended with %d: %s" % (code, words[0]))[:300]}

    def tell(self, what):
        with contextlib.suppress(BrokenPipeError):
            self.p.stdin.write(what + b"\n")
            self.p.stdin.flush()

    def end(self):
        self.tell(b"bye")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.p.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.p.pid, signal.SIGKILL)
        self.p.wait()
        with contextlib.suppress(BrokenPipeError):
            self.p.stdin.close()
        self.p.stdout.close()
        self.log.close()


class Profiler:
    def __init__(self, opts, card, table, known):
        self.o, self.gauge, self.table, self.known = opts, card, table, known
        self.source, self.traces = tracer_source(), {}
        self.tracers = concurrent.futures.ThreadPoolExecutor(max(1, min(6, (os.cpu_count() or 1) // 2)))
        self.waiting = collections.OrderedDict()  # workers by job, made before their turn
        self.begin = time.monotonic()

    def job(self, model, batch=1.0, mode="training", precision=None, optimizer="adamw", checkpointing=False):
        """A run of model; batch is a multiple of its middle one."""
        family, source, middle, length = self.known[model]
        cuda = self.o.device == "cuda"
        return {"kind": "single", "gpu": self.gauge.name, "model": model, "family": family, "source": source, "mode": mode,
                "batch_size": max(1, int(middle * batch)), "seq_len": length, "precision": precision or ("tf32" if cuda else "fp32"),
                "optimizer": optimizer if mode == "training" else "", "checkpointing": int(checkpointing), "sharing": "exclusive", "partner": "",
                "device": self.o.device, "warmup": self.o.warmup, "seconds": self.o.seconds, "min_steps": self.o.min_steps}

    def spent(self):
        return self.o.minutes and time.monotonic() - self.begin > self.o.minutes * 60

    def base(self, job):
        row = {k: job[k] for k in KEY + ["family", "source"]}
        row.update(gpu_mem_mib=self.gauge.total_mib, driver=self.gauge.driver, unix_time=int(time.time()), oom=False)
        row.update(self.trace(job))
        return row

    def trace(self, job):
        """What the tracer says of a job; nothing when it cannot."""
        if not self.source or self.o.no_trace:
            return {}
        return self.begin_trace(job).result()

    def begin_trace(self, job):
        key = json.dumps({k: job[k] for k in ("model", "mode", "batch_size", "seq_len", "precision", "optimizer", "checkpointing")}, sort_keys=True)
        if key not in self.traces:
            self.traces[key] = self.tracers.submit(self.run_tracer, job, key)
        return self.traces[key]

    def prepare(self, jobs):
        """Has the first of the jobs ahead traced and their workers import and build what they need; the GPU they leave alone."""
        for j in jobs[:self.o.ahead]:
            if self.source and not self.o.no_trace:
                self.begin_trace(j)
            if Table.key(j) not in self.waiting:
                self.waiting[Table.key(j)] = Worker(j)

    def worker(self, job, env):
        return (None if env else self.waiting.pop(Table.key(job), None)) or Worker(job, env)

    def close(self):
        self.tracers.shutdown(cancel_futures=True)
        for w in self.waiting.values():
            w.end()

    def run_tracer(self, job, key):
        cfg = {"target": os.path.join(HERE, "workloads.py") + ":traced", "factory": True, "args": [key], "inference": job["mode"] == "inference",
               "fake": True, "batch": job["batch_size"], "seq_len": job["seq_len"], "precision": job["precision"], "optimizer": job["optimizer"],
               "result_fd": 1, "memory_bytes": 0}
        code = "import sys\nexec(compile(sys.stdin.read(), '<berth trace>', 'exec'), {'__name__': 'berth_trace'})"
        try:
            out = subprocess.run([sys.executable, "-c", code, json.dumps(cfg)], input=self.source.encode(), stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, timeout=self.o.trace_timeout, env=dict(os.environ, CUDA_VISIBLE_DEVICES="")).stdout
            got = json.loads(out.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError) as e:
            got = {"error": "trace", "detail": type(e).__name__}
        if "error" in got:
            say("no trace of", job["model"] + ":", got["detail"].splitlines()[0] if got.get("detail") else got["error"])
            return {}
        return {k: got[k] for k in TRACED}

    def single(self, job):
        measured = self.measure([job])[0]
        row = dict(self.base(job), **measured)
        self.table.add(row)
        return row

    def measure(self, jobs, env=None):
        """Runs jobs beside each other; one dict of measurements for each."""
        before = self.gauge.sample([]).get("device")
        workers = [self.worker(j, env) for j in jobs]
        for w in workers:
            w.tell(b"begin")
        sampler = gauge.Sampler(self.gauge, [w.p.pid for w in workers])
        sampler.start()
        deadline = time.monotonic() + self.o.timeout
        try:
            answers = [w.hear(deadline) for w in workers]
            if all(a["event"] == "ready" for a in answers):
                sampler.mark(True)
                for w in workers:
                    w.tell(b"go")
                answers = [w.hear(deadline) for w in workers]
                sampler.mark(False)
                sampler.take()  # at least once after the steady part
        finally:
            sampler.stop()
            for w in workers:
                w.end()
        return [self.result(a, w.p.pid, sampler, before, len(jobs)) for a, w in zip(answers, workers)]

    def result(self, a, pid, sampler, before, jobs):
        out = {k: a[k] for k in MEASURED + ["torch", "cuda"] if k in a}
        peak = sampler.peak.get("device")
        out.update(device_base_mem_mib=before, device_peak_mem_mib=peak, gpu_util_pct=sampler.mean("util"), mem_util_pct=sampler.mean("mem_util"),
                   util_samples=len(sampler.rates["util"]), sample_gap_s=sampler.gap or None, power_w=sampler.mean("power"))
        # Drivers inside containers may not name processes; alone on the GPU the
        # difference tells the same.
        alone = peak - before if jobs == 1 and peak is not None and before is not None else None
        out["peak_mem_mib"] = sampler.peak.get(pid, alone)
        if jobs == 1 and a.get("steps") and sampler.joules() is not None:
            out["energy_per_step_j"] = sampler.joules() / a["steps"]
        if a["event"] == "failed":
            out["error"] = a["error"].replace("\n", " ")
        if sampler.error and not out.get("error"):
            out["error"] = "sampling: " + sampler.error
        return out

    def pair(self, a, b, sharing, env):
        """Two jobs beside each other: one row for each, in terms of its speed alone."""
        jobs = [dict(j, kind="pair", sharing=sharing, partner="%s/%s/%s/%s" % (o["model"], o["mode"], o["batch_size"], o["precision"]))
                for j, o in ((a, b), (b, a))]
        if all(Table.key(j) in self.table.rows for j in jobs):
            return False
        alone = [self.table.rows.get(Table.key(j)) or self.single(j) for j in (a, b)]
        rows = [dict(self.base(j), **m) for j, m in zip(jobs, self.measure(jobs, env))]
        for row, before in zip(rows, alone):
            once, now = float(before.get("step_time_s") or 0), row.get("step_time_s")
            if once and now and not row.get("error"):
                row.update(exclusive_step_time_s=once, normalized_speed=once / now)
            if Table.key(row) not in self.table.rows:
                self.table.add(row)
        return True


@contextlib.contextmanager
def mps(device):
    """Starts NVIDIA's MPS server of our own; gives the environment of its clients, or None."""
    with tempfile.TemporaryDirectory(prefix="berth-mps-") as where:
        env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=where, CUDA_MPS_LOG_DIRECTORY=where)
        try:
            ok = device == "cuda" and subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, stdout=subprocess.DEVNULL,
                                                     stderr=subprocess.DEVNULL, timeout=30).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            ok = False
        if not ok:
            say("MPS cannot be started here; pairs share by time-slicing alone")
        try:
            yield env if ok else None
        finally:
            if ok:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=env, stdout=subprocess.DEVNULL, timeout=30)


def sweep(p, preset):
    """The single runs of a preset, the most telling ones first."""
    names = p.o.models or [n for n in p.known if n.startswith("tiny") == (preset == "test")]
    if preset == "quick" and not p.o.models:
        names = [n for n in names if p.known[n][1] == "torch"] + [n for n in ("resnet50", "vit_b_16") if n in p.known]
    every = lambda **how: [p.job(n, **how) for n in names]
    cuda = p.o.device == "cuda"
    if preset == "test":
        return every() + every(mode="inference") + every(optimizer="sgd", checkpointing=True)[-1:]
    if preset == "breadth":
        return every() + [j for b in (0.25, 4) for j in every(batch=b)[::3]] + every(precision="amp")[1::3] + every(mode="inference", precision="bf16" if cuda else None)[2::3]
    jobs = every() + every(mode="inference", precision="bf16" if cuda else None)
    jobs += every(precision="amp") + every(batch=0.25) + every(batch=4)
    if preset == "quick":
        return jobs
    jobs += [p.job(n, checkpointing=True) for n in names if p.known[n][0] not in ("cnn", "mlp", "rnn", "vgg", "squeezenet", "alexnet")]
    jobs += every(precision="bf16") + every(optimizer="sgd") + every(optimizer="adam") + every(precision="fp32")
    jobs += every(mode="inference", batch=0.25) + every(mode="inference", batch=4) + every(precision="bf16", batch=4) + every(precision="amp", batch=4)
    jobs += every(optimizer="momentum", batch=0.5) + every(batch=2) + every(batch=16)  # the last ones may run out of memory: that counts too
    return jobs


def pairs(p, preset):
    if preset == "test":
        names = p.o.models or ["tiny_mlp", "tiny_transformer"]
    else:
        names = [n for n in p.o.models or ("resnet50", "transformer_base", "cnn_small", "lstm_lm", "mlp_deep", "vit_b_16", "hf_gpt2") if n in p.known]
    # Where time is short, a pair's runs are those that were measured alone.
    jobs = [p.job(n, precision="amp" if preset in ("quick", "afternoon") else None) for n in names]
    if preset == "afternoon":
        jobs += [p.job(n, mode="inference", precision="bf16", batch=0.25) for n in names[:3]]
    both = [(a, b) for i, a in enumerate(jobs) for b in jobs[i:]]
    return {"quick": both[:6], "breadth": both[1::2]}.get(preset, both)


def arguments():
    a = argparse.ArgumentParser(description="Measure what models take on this machine's GPU, into a CSV file.")
    a.add_argument("--out", default="profile.csv", help="the file; rows that it has are skipped (%(default)s)")
    a.add_argument("--preset", choices=["breadth", "quick", "afternoon", "test"], default="quick")
    a.add_argument("--minutes", type=float, default=0, help="begin no run after this time")
    a.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    a.add_argument("--index", type=int, default=0, help="which GPU, as nvidia-smi counts")
    a.add_argument("--models", type=lambda s: s.split(","), help="only these, with commas between")
    a.add_argument("--seconds", type=float, default=8, help="steady part of a run (%(default)s)")
    a.add_argument("--warmup", type=int, default=5, help="steps before it (%(default)s)")
    a.add_argument("--min-steps", type=int, default=10)
    a.add_argument("--timeout", type=float, default=180, help="of one run, in seconds (%(default)s)")
    a.add_argument("--trace-timeout", type=float, default=120)
    a.add_argument("--ahead", type=int, default=3, help="runs whose processes are started before their turn, on the CPU alone (%(default)s)")
    a.add_argument("--no-trace", action="store_true", help="leave out what the tracer counts")
    a.add_argument("--no-pairs", action="store_true")
    a.add_argument("--list", action="store_true", help="print the runs in their order, and end")
    return a.parse_args()


def main():
    o = arguments()
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if o.device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = str(o.index)
    try:
        import torch  # noqa: F401
    except ImportError as e:
        raise SystemExit("measure: %s has no PyTorch (%s); run this with an interpreter that has" % (sys.executable, e))
    import workloads
    known = workloads.catalogue()
    for n in o.models or []:
        if n not in known:
            raise SystemExit("measure: no model %s here; there are: %s" % (n, ", ".join(known)))
    p = Profiler(o, gauge.Nothing() if o.list else gauge.find(o.device, o.index), None, known)
    singles = sweep(p, o.preset)
    together = [] if o.no_pairs else pairs(p, o.preset)
    if o.list:
        for j in singles + [dict(a, model=a["model"] + " beside " + b["model"]) for a, b in together]:
            print(*[j[k] for k in ("model", "mode", "batch_size", "precision", "optimizer")], "checkpointing" if j["checkpointing"] else "")
        return
    p.table = Table(o.out)
    with contextlib.closing(p):
        go(p, singles, together)


def go(p, singles, together):
    """Singles of the first part, then pairs, then the rest: each part is worth having alone."""
    first = {"afternoon": len(singles) // 3, "breadth": len(singles) // 2}.get(p.o.preset, len(singles))
    for part in (singles[:first], None, singles[first:]):
        if part is None:
            share(p, together)
            continue
        part = [j for j in part if Table.key(j) not in p.table.rows]
        for i, j in enumerate(part):
            if p.spent():
                return say("the time is used up; run the same command again to go on")
            p.prepare(part[i:])
            r = p.single(j)
            say(j["model"], j["mode"], "batch", j["batch_size"], j["precision"], "step %s s" % r.get("step_time_s"), r.get("error", ""))


def share(p, together):
    if not together:
        return
    with mps(p.o.device) as env:
        for sharing, e in (("timeslice", None), ("mps", env)):
            for a, b in together if sharing == "timeslice" or env else []:
                if p.spent():
                    return
                if p.pair(a, b, sharing, e):
                    say(a["model"], "beside", b["model"], sharing)


if __name__ == "__main__":
    main()
