#!/bin/sh
# Starts Jupyter on a socket that only its user may open, with a token as well.
umask 077
dir=/tmp/.berth-notebook-$BERTH_JOB_ID-$BERTH_RESTART_COUNT
mkdir "$dir" || exit 125 # somebody else's is not used
jupyter=@JUPYTER@
set --
if [ -n "$jupyter" ]; then
	case ${jupyter##*/} in jupyter) set -- "$jupyter" @KIND@ ;; *) set -- "$jupyter" ;; esac
elif command -v jupyter-@KIND@ >/dev/null; then
	set -- jupyter-@KIND@
elif command -v jupyter >/dev/null; then
	set -- jupyter @KIND@
fi
if [ $# = 0 ] || ! command -v "$1" >/dev/null; then
	rmdir "$dir"
	exit 127
fi
cat >"$dir/config.py" <<'PY'
import os, secrets, socket, sys
d = "/tmp/.berth-notebook-%s-%s" % (os.environ["BERTH_JOB_ID"], os.environ["BERTH_RESTART_COUNT"])

def sockets():
    # Whether this Jupyter can listen on one, as all since 2020 can.
    known = [getattr(sys.modules.get(m), a, None) for m, a in
             (("jupyter_server.serverapp", "ServerApp"), ("notebook.notebookapp", "NotebookApp"))]
    return all(hasattr(a, "sock") for a in known if a is not None)

try:
    where, token, kind = open(d + "/address").read().split()
except FileNotFoundError:  # it may be read more than once
    where, token = d + "/sock", secrets.token_hex(24)
    if not sockets():  # the token keeps others of the node out
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            where = str(s.getsockname()[1])
    with os.fdopen(os.open(d + "/address", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as f:
        f.write(where + " " + token + " @KIND@\n")
for app in (c.ServerApp, c.NotebookApp):
    if where[0] == "/":
        app.sock, app.sock_mode = where, "0600"
    else:
        app.ip, app.port, app.port_retries = "127.0.0.1", int(where), 0
    app.token, app.password, app.open_browser = token, "", False
    if @IDLE@:
        app.shutdown_no_activity_timeout = @IDLE@
    if os.geteuid() == 0:
        app.allow_root = True
c.IdentityProvider.token = token
if @IDLE@:
    c.MappingKernelManager.cull_idle_timeout = @IDLE@
    c.MappingKernelManager.cull_interval = max(1, min(60, @IDLE@ // 4))
PY
cat >"$dir/ready.new" <<'PY'
import http.client, os, socket, sys, time
d = os.path.dirname(os.path.abspath(__file__))

class Answer(http.client.HTTPConnection):
    def connect(self):
        if where[0] != "/":
            return super().connect()
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(where)

for _ in range(600):
    try:
        where, token, kind = open(d + "/address").read().split()
        a = Answer("127.0.0.1", 80 if where[0] == "/" else int(where), timeout=5)
        a.request("GET", "/api")
        a.getresponse()
    except (OSError, ValueError, http.client.HTTPException):
        time.sleep(0.1)
        continue
    print(where, token, kind)
    sys.exit(0)
sys.exit(1)
PY
mv "$dir/ready.new" "$dir/ready.py" # who waits for it finds the whole of it
trap 'kill "$pid" 2>/dev/null' TERM INT HUP
"$@" --config="$dir/config.py" >"$dir/log" 2>&1 &
pid=$!
wait "$pid"
code=$?
while kill -0 "$pid" 2>/dev/null; do
	wait "$pid"
	code=$?
done
if [ $code = 0 ]; then
	rm -rf "$dir"
fi
exit $code
