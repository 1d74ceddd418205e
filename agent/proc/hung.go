package proc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Hung is a process of which a thread waits in the kernel, where no signal reaches it.
type Hung struct {
	PID  int
	Name string // of its program, as the thread calls itself
	In   string // the function of the kernel; "" if that does not say
}

// String names it as "4711 (cp, in nfs_wait)".
func (h Hung) String() string {
	if h.In == "" {
		return fmt.Sprintf("%d (%s)", h.PID, h.Name)
	}
	return fmt.Sprintf("%d (%s, in %s)", h.PID, h.Name, h.In)
}

const (
	maxThreads = 256  // of a process that are looked at
	maxRecord  = 4096 // bytes of a file in /proc
)

// HungOf returns which of pids are in uninterruptible sleep according to root, which is /proc
// but in tests. It reads nothing for which the kernel takes locks of the process, as it does
// for a command line.
func HungOf(root string, pids []int) (out []Hung) {
	for _, pid := range pids[:min(len(pids), maxTree)] {
		tasks := filepath.Join(root, strconv.Itoa(pid), "task")
		for _, tid := range threads(tasks) {
			if name, state := stateOf(filepath.Join(tasks, tid)); state == 'D' {
				in := strings.TrimSpace(string(record(filepath.Join(tasks, tid, "wchan"))))
				if in == "0" {
					in = ""
				}
				out = append(out, Hung{PID: pid, Name: plain(name), In: plain(in)})
				break
			}
		}
	}
	return out
}

// threads returns the ids of a process's threads: the first may have ended before others.
func threads(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil // it has ended
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxThreads) // with an error come those read before
	return names
}

// stateOf returns the name and state of a thread, and 0 if it has ended.
func stateOf(dir string) (name string, state byte) {
	data := record(filepath.Join(dir, "stat"))
	from, to := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')') // the name may contain any byte
	if from < 0 || to < from || len(data) < to+3 {
		return "", 0
	}
	return string(data[from+1 : to]), data[to+2]
}

func record(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, maxRecord)) // what is missing is unknown
	return data
}

// plain replaces what a job could write into a terminal or a metric by its name.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, s)
}
