# Jobs of PSI/J: one that ends well, one that does not, and one that is cancelled.
import datetime
import os
import pathlib

os.makedirs(os.path.expanduser("~/.psij/work"), exist_ok=True)
import psij

executor = psij.JobExecutor.get_instance("slurm")


def submit(command, *arguments):
    spec = psij.JobSpec(executable=command, arguments=list(arguments), stdout_path=pathlib.Path("out").absolute(), launcher="srun",
                        resources=psij.ResourceSpecV1(node_count=1, processes_per_node=2, cpu_cores_per_process=1))
    spec.attributes = psij.JobAttributes(duration=datetime.timedelta(minutes=5), queue_name="gpu", account="science")
    job = psij.Job(spec)
    executor.submit(job)
    return job


job = submit("/bin/echo", "hello")
print(job.wait().state.name, open("out").read().split())
status = submit("/bin/false").wait()
print(status.state.name, status.exit_code)
job = submit("/bin/sleep", "3600")
job.wait(target_states=[psij.JobState.ACTIVE])
job.cancel()
print(job.wait().state.name)
