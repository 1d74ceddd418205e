#!/bin/sh
# Starts Jupyter on a free port with a token that nobody else can read.
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
import os, secrets, socket
d = "/tmp/.berth-notebook-%s-%s" % (os.environ["BERTH_JOB_ID"], os.environ["BERTH_RESTART_COUNT"])
try:
    port, token = open(d + "/address").read().split()
except FileNotFoundError:  # it may be read more than once
    s = socket.socket()
    s.bind(("", 0))
    port, token = str(s.getsockname()[1]), secrets.token_hex(24)
    s.close()
    with os.fdopen(os.open(d + "/address", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as f:
        f.write(port + " " + token + "\n")
for app in (c.ServerApp, c.NotebookApp):
    app.ip, app.port, app.port_retries = "0.0.0.0", int(port), 0
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
cat >"$dir/ready.py" <<'PY'
import os, sys, time, urllib.request, urllib.error
d = os.path.dirname(os.path.abspath(__file__))
for _ in range(600):
    try:
        port, token = open(d + "/address").read().split()
        urllib.request.urlopen("http://127.0.0.1:%s/api" % port, timeout=5)
    except urllib.error.HTTPError:
        pass  # it asks for the token
    except (OSError, ValueError):
        time.sleep(0.1)
        continue
    print(port, token)
    sys.exit(0)
sys.exit(1)
PY
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
