# Jobs of submitit: one of two tasks, an array, one that is cancelled and one that fails.
import os
import time

import submitit

executor = submitit.AutoExecutor(folder="log_%j", cluster="slurm")
executor.update_parameters(timeout_min=5, slurm_partition="gpu", mem_gb=1, tasks_per_node=2)
print("tasks", executor.submit(lambda a, b: (a + b, int(os.environ["SLURM_PROCID"])), 2, 3).results())
executor.update_parameters(tasks_per_node=1)
print("array", [job.result() for job in executor.map_array(lambda x: x * x, [1, 2, 3])])


def until(job, state):
    while not job.state.startswith(state):
        time.sleep(0.5)
        job.watcher.update()


job = executor.submit(time.sleep, 3600)
until(job, "RUNNING")
job.cancel()
until(job, "CANCELLED")
print("cancelled", job.done())
try:
    executor.submit(lambda: 1 / 0).result()
except submitit.core.utils.FailedJobError as e:
    print("failed", "ZeroDivisionError" in str(e))
