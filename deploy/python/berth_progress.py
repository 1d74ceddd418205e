"""Tells Berth how far a job is. One file, no dependencies.

    import berth_progress
    for step, batch in enumerate(loader):
        train(batch)
        berth_progress.report(step + 1, total=steps, loss=loss.item())

Outside a Berth job, and wherever nothing can be written, it does nothing: a job
never fails for it. Of several processes of a job the first alone reports.
"""

import json
import math
import os
import time

_EVERY = 1.0  # seconds between two lines; the last step is always told
_LARGE = 1 << 18  # bytes from which on the file is begun anew
_last = 0.0
_more = {}  # numbers that no line has said yet


def report(step, total=None, **more):
    """Says that the job has taken `step` of `total` steps; more are numbers such as a loss.

    Of what is said more often than once a second the last is written, with all numbers
    since the line before."""
    global _last
    path = os.environ.get("BERTH_PROGRESS")
    now = time.monotonic()
    done = total is not None and step >= total
    note(more)
    if not path or _rank() != 0 or (now - _last < _EVERY and _last and not done):
        return
    _last = now
    line = dict(_more, step=int(step))
    if total is not None:
        line["total"] = int(total)
    _more.clear()
    try:
        with open(path, "a") as f:
            if f.tell() > _LARGE:
                f.truncate(0)
            f.write(json.dumps(line) + "\n")
    except OSError:
        pass


def note(numbers):
    """Keeps numbers by name for the next line that is written; what is no number is left out."""
    for name, value in numbers.items():
        try:
            value = float(value)
        except (TypeError, ValueError):
            continue
        if math.isfinite(value):  # JSON knows no other numbers
            _more[name] = value


def _rank():
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def transformers_callback():
    """A callback for transformers.Trainer(callbacks=[berth_progress.transformers_callback()])."""
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            report(state.global_step, state.max_steps)

        def on_log(self, args, state, control, logs=None, **kwargs):
            note(logs or {})

    return Progress()


def lightning_callback():
    """A callback for Trainer(callbacks=[berth_progress.lightning_callback()]) of PyTorch Lightning."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class Progress(Callback):
        def on_train_batch_end(self, trainer, *args, **kwargs):
            total = trainer.estimated_stepping_batches
            report(trainer.global_step, total if math.isfinite(total) else None)

        def on_validation_end(self, trainer, *args, **kwargs):
            note(trainer.callback_metrics)

    return Progress()
