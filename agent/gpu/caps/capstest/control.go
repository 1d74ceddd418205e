// Package capstest provides a stand-in for nvidia-cuda-mps-control, for tests.
package capstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script keeps the records of one daemon per pipe directory: "alive" exists while it runs,
// "commands" contains its commands, "started" how it was started, "pids" its processes. It
// refuses what the real one refuses: a second daemon on one pipe, and commands when none is
// running. A test writes "FAULT" to "status", or removes "alive".
const script = `#!/bin/sh
p="$CUDA_MPS_PIPE_DIRECTORY"
if [ "$1" = -d ]; then
	[ -d "$p" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || { echo "no directories"; exit 1; }
	[ -e "$p/alive" ] && { echo "An instance of this daemon is already running"; exit 1; }
	echo "$CUDA_VISIBLE_DEVICES $*" >> "$p/started"
	echo $$ >> "$p/pids"
	echo ACTIVE > "$p/status"
	: > "$p/alive"
	exit 0
fi
[ -e "$p/alive" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
while read -r line; do
	echo "$line" >> "$p/commands"
	case "$line" in
	get_server_list) echo 4711 ;;
	"get_server_status 4711") cat "$p/status" ;;
	quit*) rm "$p/alive" ;;
	*) echo "unknown command"; exit 1 ;;
	esac
done
`

// Control writes the stand-in and returns its path.
func Control(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-cuda-mps-control")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Pipe returns the directory of a GPU below the daemons' own.
func Pipe(dir, uuid string) string { return filepath.Join(dir, uuid, "pipe") }

// Alive reports whether the daemon of a GPU is running.
func Alive(dir, uuid string) bool {
	_, err := os.Stat(filepath.Join(Pipe(dir, uuid), "alive"))
	return err == nil
}

// Kill ends the daemon of a GPU silently.
func Kill(t testing.TB, dir, uuid string) {
	t.Helper()
	if err := os.Remove(filepath.Join(Pipe(dir, uuid), "alive")); err != nil {
		t.Fatal(err)
	}
}

// Fault simulates a client that has ended the server of a GPU; line is added to its log.
func Fault(t testing.TB, dir, uuid, line string) {
	t.Helper()
	log := filepath.Join(dir, uuid, "log", "server.log")
	if err := os.WriteFile(log, []byte("[2026-01-02 03:04:05.678 Server  4711] Received new client request\n"+line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(Pipe(dir, uuid), "status"), []byte("FAULT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Lines returns the lines of one of the daemon's records, "started" or "commands".
func Lines(dir, uuid, file string) []string {
	data, err := os.ReadFile(filepath.Join(Pipe(dir, uuid), file))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}
