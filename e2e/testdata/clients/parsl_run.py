# parsl's provider: it submits a block, sees it run, cancels it, and sees one end.
import os
import time

from parsl.jobs.states import JobState
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider

provider = SlurmProvider(partition="gpu", account="science", walltime="00:05:00", exclusive=False, cores_per_node=2, mem_per_node=1, launcher=SrunLauncher())
provider.script_dir = os.getcwd()


def until(job, *states):
    while provider.status([job])[0].state not in states:
        time.sleep(0.5)
    return provider.status([job])[0].state.name


job = provider.submit("sleep 3600", 2, "block")
print(until(job, JobState.RUNNING), provider.cancel([job]))
print(until(provider.submit("true", 2, "short"), JobState.COMPLETED, JobState.FAILED))
