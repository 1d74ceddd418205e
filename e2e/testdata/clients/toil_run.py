# A workflow of toil with two jobs below the first.
import os

from toil.common import Toil
from toil.job import Job


def hello(job, name):
    return "made by " + name


def first(job):
    return [job.addChildJobFn(hello, name, memory="100M", cores=1, disk="100M").rv() for name in "ab"]


if __name__ == "__main__":
    options = Job.Runner.getDefaultArgumentParser().parse_args(
        ["--batchSystem", "slurm", "--disableCaching", "--statePollingWait", "1", os.getcwd() + "/store"])
    options.logLevel = "ERROR"
    with Toil(options) as toil:
        print(toil.start(Job.wrapJobFn(first, memory="100M", cores=1, disk="100M")))
