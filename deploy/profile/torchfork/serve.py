# Imports PyTorch once; each program that a test runs is then a fork. It is
# started as: python -c THIS FOLDER. In the folder it puts a program "python" that
# takes what python takes (-c CODE, or a script, after flags without values): its
# arguments, environment, folder, limits and open files go to a fork of this
# process, and it ends as that ends. It says where the program is on standard output, and
# ends, with all forks and the folder, when its standard input does.
import gc
import io
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import sys
import types

import torch
import torch.utils.checkpoint
import torch.utils.data
try:
    import torch._subclasses.fake_tensor
except ImportError:
    pass  # older versions have none

# In the same process group as what it stands for, and in that only: who kills
# the group kills both. Its end, however it came, ends the fork.
STAND_IN = """#!%s -IS
import json, os, resource, signal, socket, sys
conn = socket.socket(socket.AF_UNIX)
conn.connect(%r)
fds = [int(f) for f in os.listdir("/proc/self/fd") if int(f) != conn.fileno() and os.path.exists("/proc/self/fd/" + f)]
what = json.dumps({"args": sys.argv[1:], "env": dict(os.environ), "dir": os.getcwd(), "fds": fds, "group": os.getpgrp(), "exe": sys.argv[0],
                   "memory": resource.getrlimit(resource.RLIMIT_AS)}).encode()
socket.send_fds(conn, [b"%%16d" %% len(what)], fds)
conn.sendall(what)
status = conn.recv(16)
code = os.waitstatus_to_exitcode(int(status or 256))
if code < 0:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def become(what, fds):
    """Makes this process what was started; returns the program and its name."""
    try:
        os.setpgid(0, what["group"])
    except PermissionError:
        os.setsid()  # that group belongs to a session of its own, or is gone
    high = [os.dup2(f, 500 + i) for i, f in enumerate(fds)]
    for h, f in zip(high, what["fds"]):
        os.dup2(h, f, inheritable=True)
    os.closerange(500, 500 + len(high))
    for f in os.listdir("/proc/self/fd"):
        if int(f) not in what["fds"]:
            try:
                os.close(int(f))
            except OSError:
                pass
    os.chdir(what["dir"])
    os.environ.clear()
    os.environ.update(what["env"])
    resource.setrlimit(resource.RLIMIT_AS, what["memory"])
    if os.environ.get("PYTHONUNBUFFERED"):
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), encoding="utf-8", errors="replace", write_through=True)
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)
    sys.executable = what["exe"]
    args = what["args"]
    while args[0] != "-c" and args[0].startswith("-"):
        del args[0]
    if args[0] == "-c":
        sys.argv, sys.path[0] = ["-c"] + args[2:], ""
        return args[1], None
    sys.argv, sys.path[0] = args, os.path.dirname(os.path.abspath(args[0]))
    return None, args[0]


def hear(conn):
    head, fds, _, _ = socket.recv_fds(conn, 16, 200)
    size, text = int(head), b""
    while len(text) < size:
        text += conn.recv(size - len(text))
    return json.loads(text), fds


def watch(conn, child):
    """Waits for the child's end and tells, or for the other's, and kills."""
    fd = os.pidfd_open(child)
    ready, _, _ = select.select([fd, conn], [], [])
    if fd not in ready:
        for kill in (os.kill, os.killpg) if os.getsid(child) == child else (os.kill,):
            try:
                kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
    _, status = os.waitpid(child, 0)
    try:
        conn.sendall(b"%16d" % status)
    except OSError:
        pass
    os._exit(0)


def serve(folder):
    """Returns in each fork what it is to run."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(folder, "socket"))
    listener.listen(100)
    stand_in = os.path.join(folder, "python")
    with open(stand_in + ".new", "w") as f:
        f.write(STAND_IN % (sys.executable, os.path.join(folder, "socket")))
    os.chmod(stand_in + ".new", 0o755)
    os.rename(stand_in + ".new", stand_in)
    print(stand_in, flush=True)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        conn, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            what, fds = hear(conn)
            child = os.fork()
            if child == 0:
                conn.close()
                return become(what, fds)
            for f in fds:
                os.close(f)
            watch(conn, child)
        conn.close()


code, script = serve(sys.argv[1])
if script is not None:
    runpy.run_path(script, run_name="__main__")
else:
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), main.__dict__)
