# What is read from a GPU while a run goes on: by NVML when its Python binding
# is installed, by nvidia-smi otherwise, and nothing on a machine without one.
import shutil
import subprocess
import threading
import time


class Nothing:
    """A machine without a GPU, or a run on the CPU."""

    name, driver, total_mib, period = "cpu", "", 0, 0.1

    def sample(self, pids):
        return {}

    def energy(self):
        return None


class NVML:
    period = 0.05

    def __init__(self, index):
        import pynvml
        self.n = pynvml
        pynvml.nvmlInit()
        self.h = pynvml.nvmlDeviceGetHandleByIndex(index)
        text = lambda s: s.decode() if isinstance(s, bytes) else s
        self.name, self.driver = text(pynvml.nvmlDeviceGetName(self.h)), text(pynvml.nvmlSystemGetDriverVersion())
        self.total_mib = pynvml.nvmlDeviceGetMemoryInfo(self.h).total / 2**20

    def sample(self, pids):
        rates = self.n.nvmlDeviceGetUtilizationRates(self.h)
        out = {"util": rates.gpu, "mem_util": rates.memory, "device": self.n.nvmlDeviceGetMemoryInfo(self.h).used / 2**20}
        out["power"] = self._ask(lambda: self.n.nvmlDeviceGetPowerUsage(self.h) / 1000)
        for p in self._ask(lambda: self.n.nvmlDeviceGetComputeRunningProcesses(self.h)) or []:
            if p.pid in pids and p.usedGpuMemory:
                out[p.pid] = p.usedGpuMemory / 2**20
        return out

    def energy(self):
        """Joules since the driver was loaded."""
        return self._ask(lambda: self.n.nvmlDeviceGetTotalEnergyConsumption(self.h) / 1000)

    def _ask(self, question):
        try:
            return question()
        except self.n.NVMLError:  # this card does not tell
            return None


class SMI:
    period = 0.1

    def __init__(self, index):
        self.index = str(index)
        self.name, self.driver, total = self._query("gpu=name,driver_version,memory.total")[0]
        self.total_mib = float(total)

    def _query(self, what):
        out = subprocess.run(["nvidia-smi", "-i", self.index, "--query-" + what, "--format=csv,noheader,nounits"],
                             stdout=subprocess.PIPE, check=True, timeout=20).stdout.decode()
        return [[v.strip() for v in line.split(",")] for line in out.splitlines() if line.strip()]

    def sample(self, pids):
        number = lambda s: float(s) if s.replace(".", "", 1).isdigit() else None
        util, mem_util, used, power = map(number, self._query("gpu=utilization.gpu,utilization.memory,memory.used,power.draw")[0])
        out = {"util": util, "mem_util": mem_util, "device": used, "power": power}
        for pid, mem in self._query("compute-apps=pid,used_memory"):
            if int(pid) in pids and number(mem) is not None:
                out[int(pid)] = float(mem)
        return out

    def energy(self):
        return None


def find(device, index):
    if device != "cuda":
        return Nothing()
    try:
        return NVML(index)
    except Exception:  # no binding, or no library
        if not shutil.which("nvidia-smi"):
            raise SystemExit("measure: neither pynvml nor nvidia-smi is here; for a machine without a GPU give --device cpu")
        return SMI(index)


class Sampler(threading.Thread):
    """Samples until stop; peaks over all of the time, averages over the steady part."""

    def __init__(self, gauge, pids):
        super().__init__(daemon=True)
        self.gauge, self.pids, self.steady, self.done = gauge, set(pids), False, threading.Event()
        self.peak, self.rates, self.error = {}, {"util": [], "mem_util": [], "power": []}, ""
        self.gap, self.last, self.marks = 0.0, None, []

    def run(self):
        while not self.done.is_set():
            try:
                self.take()
            except Exception as e:
                self.error = "%s: %s" % (type(e).__name__, e)
                return
            self.done.wait(self.gauge.period)

    def take(self):
        steady, now = self.steady, time.monotonic()
        got = self.gauge.sample(self.pids)
        for k, v in got.items():
            if k in self.rates:
                if steady and v is not None:
                    self.rates[k].append(v)
            elif v is not None:
                self.peak[k] = max(self.peak.get(k, 0), v)
        if steady and self.last is not None:
            self.gap = max(self.gap, now - self.last)
        self.last = now if steady else None

    def mark(self, steady):
        """Begins or ends the steady part."""
        self.steady = steady
        self.marks.append((time.monotonic(), self.gauge.energy()))

    def stop(self):
        self.done.set()
        self.join()

    def mean(self, what):
        v = self.rates[what]
        return sum(v) / len(v) if v else None

    def joules(self):
        if len(self.marks) < 2:
            return None
        (t0, e0), (t1, e1) = self.marks[:2]
        if e0 is not None and e1 is not None and e1 > e0:
            return e1 - e0
        power = self.mean("power")
        return None if power is None else power * (t1 - t0)
