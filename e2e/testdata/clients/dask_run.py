# Workers of dask that dask-jobqueue submits.
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    cluster = SLURMCluster(queue="gpu", account="science", cores=1, memory="1GB", walltime="00:05:00", python="/usr/bin/python3", interface="lo", log_directory="logs")
    cluster.scale(jobs=2)
    client = Client(cluster)
    client.wait_for_workers(2)
    print([f.result() for f in client.map(lambda x: x * x, range(4))])
    client.close()
    cluster.close()
