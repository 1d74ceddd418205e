package owner

import (
	"bytes"
	"os"
	"path"
	"strconv"
	"strings"
)

// stat is the parsed content of /proc/PID/stat.
type stat struct {
	command string
	zombie  bool
	start   uint64 // in clock ticks since boot
}

func readStat(dir string) (stat, bool) {
	b, err := os.ReadFile(path.Join(dir, "stat"))
	if err != nil {
		return stat{}, false
	}
	return parseStat(b)
}

// parseStat parses "PID (COMMAND) STATE ...", where the command may contain any byte,
// including parentheses and newlines; field 22 is the start.
func parseStat(b []byte) (stat, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return stat{}, false
	}
	f := strings.Fields(string(b[end+1:]))
	const startField = 22 - 3 // fields 1 and 2 are cut off, and f[0] is field 3
	if len(f) <= startField {
		return stat{}, false
	}
	start, err := strconv.ParseUint(f[startField], 10, 64)
	if err != nil {
		return stat{}, false
	}
	return stat{command: string(b[open+1 : end]), zombie: f[0] == "Z" || f[0] == "X", start: start}, true
}

// readUID returns the real user of a process.
func readUID(dir string) (uint32, bool) {
	b, err := os.ReadFile(path.Join(dir, "status"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			f := strings.Fields(rest)
			if len(f) == 0 {
				return 0, false
			}
			n, err := strconv.ParseUint(f[0], 10, 32)
			return uint32(n), err == nil
		}
	}
	return 0, false
}
