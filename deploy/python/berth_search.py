"""Searches over parameters with values that are chosen outside of Berth. One file, no dependencies.

    python3 berth_search.py --trials 20 --at-once 4 --metric loss \\
        --space lr=1e-4:1:log --space width=64,128,256 -- \\
        --gpus 0.25 -- python3 train.py --lr={lr} --width={width}

Each trial is a job of its own, with what stands between the two -- as the options of berth
submit. It says how good it is as any job does, in the file that BERTH_PROGRESS names. What
chooses the values is asked for them and told what came of them, so that another one takes
its place in two lines; with Optuna:

    study = optuna.create_study()
    class Optuna:
        def ask(self):
            self.trial = study.ask()
            return self.trial.number, {"lr": self.trial.suggest_float("lr", 1e-4, 1, log=True)}
        def tell(self, number, value):
            study.tell(number, value)        # None: state=optuna.trial.TrialState.FAIL
    berth_search.search(Optuna(), trials=20, at_once=4, metric="loss", options=["--gpus", "0.25"],
                        command=["python3", "train.py", "--lr={lr}"])
"""

import argparse
import json
import math
import random
import subprocess
import sys
import time

_OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "DEADLINE"}


class Near:
    """Draws values at random first, and then near those of the best quarter so far."""

    def __init__(self, space, seed=0, first=5, maximize=False):
        self.space, self.first, self.rng = space, first, random.Random(seed)
        self.sign = -1 if maximize else 1
        self.asked, self.told = {}, []

    def ask(self):
        """Returns the number of a new trial, and its values by name."""
        number, near = len(self.asked), None
        if len(self.told) >= self.first:
            near = self.rng.choice(self.told[: max(1, len(self.told) // 4)])[1]
        self.asked[number] = {n: self._draw(v, near and near[n]) for n, v in self.space.items()}
        return number, self.asked[number]

    def tell(self, number, value):
        """Takes over what came of a trial; None is that it failed."""
        if value is not None:
            self.told.append((self.sign * value, self.asked[number]))
            self.told.sort(key=lambda t: t[0])

    def _draw(self, of, near):
        if isinstance(of, list):
            return near if near is not None and self.rng.random() < 0.7 else self.rng.choice(of)
        low, high, log = of
        a, b = (math.log(low), math.log(high)) if log else (low, high)
        x = self.rng.uniform(a, b)
        if near is not None:
            x = min(b, max(a, self.rng.gauss(math.log(near) if log else near, (b - a) / 10)))
        return math.exp(x) if log else x


def submit(command, metric, options):
    """Submits a job, and returns its id."""
    args = ["berth", "submit", "--parsable", "--metric", metric, *options, "--", *command]
    return int(subprocess.run(args, check=True, stdout=subprocess.PIPE, text=True).stdout.split(";")[0])


def read(job):
    """Returns whether a job is over, and the best it said of its metric, None for nothing or a failure."""
    out = subprocess.run(["berth", "show", str(job), "-o", "json"], stdout=subprocess.PIPE, text=True)
    if out.returncode:
        return False, None  # nobody leads for a moment; it is asked again
    shown = json.loads(out.stdout)
    over = shown["state"] in _OVER
    return over, (shown.get("trial") or {}).get("best") if shown["state"] == "COMPLETED" else None


def search(sampler, trials, at_once, metric, command, options=(), every=1.0, maximize=False, said=print):
    """Runs so many trials, at most so many at once, and returns the best value and its values by name."""
    running, begun, best = {}, 0, None
    while begun < trials or running:
        while begun < trials and len(running) < at_once:
            number, values = sampler.ask()
            filled = [_fill(c, values) for c in command]
            running[submit(filled, metric + (":max" if maximize else ""), options)] = number, values
            begun += 1
        time.sleep(every)
        for job in list(running):
            over, value = read(job)
            if not over:
                continue
            number, values = running.pop(job)
            sampler.tell(number, value)
            said(f"trial {number}, job {job}: {metric} {value} with {values}")
            if value is not None and (best is None or (value > best[0] if maximize else value < best[0])):
                best = value, values
    return best


def _fill(text, values):
    for name, value in values.items():
        text = text.replace("{%s}" % name, f"{value:.6g}" if isinstance(value, float) else str(value))
    return text


def _axis(text):
    name, _, of = text.partition("=")
    if not name.isidentifier() or not of:
        raise argparse.ArgumentTypeError(f"{text}: want NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C")
    if ":" not in of:
        return name, of.split(",")
    parts = of.split(":")
    try:
        low, high, log = float(parts[0]), float(parts[1]), parts[2:] == ["log"]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: {of} is no range of numbers")
    if not low < high or parts[2:] not in ([], ["log"]) or log and low <= 0:
        raise argparse.ArgumentTypeError(f"{text}: want LOW below HIGH, and both above 0 with log")
    return name, (low, high, log)


def main(args):
    p = argparse.ArgumentParser(description="search over parameters, with trials that are jobs of Berth", epilog="see the head of this file")
    p.add_argument("--trials", type=int, required=True)
    p.add_argument("--at-once", type=int, default=4)
    p.add_argument("--metric", required=True)
    p.add_argument("--maximize", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--space", type=_axis, action="append", required=True, metavar="NAME=VALUES")
    own = (args + ["--"]).index("--")
    o, rest = p.parse_args(args[:own]), args[own + 1 :]
    if "--" not in rest or rest[-1] == "--":
        p.error("want -- OPTIONS OF BERTH SUBMIT -- COMMAND")
    at = rest.index("--")
    space = dict(o.space)
    best = search(Near(space, o.seed, maximize=o.maximize), o.trials, o.at_once, o.metric, rest[at + 1 :], rest[:at], maximize=o.maximize)
    if best is None:
        sys.exit("no trial said anything of " + o.metric)
    print(json.dumps({"best": best[0], "values": best[1]}))


if __name__ == "__main__":
    main(sys.argv[1:])
