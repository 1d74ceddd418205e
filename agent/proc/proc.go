// Package proc reads the kernel's accounting of processes: bytes read from and written to
// storage, and memory that is theirs alone. See proc(5).
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// IO is what a process, with the children that it waited for, read from and wrote to storage,
// in bytes. Reads served by the page cache do not count, nor do writes discarded from it before
// they reached the disk, files in memory, and pipes.
type IO struct{ Read, Written int64 }

// Add returns the sum of both.
func (a IO) Add(b IO) IO { return IO{a.Read + b.Read, a.Written + b.Written} }

// Sub returns the excess of a over b, each at least 0.
func (a IO) Sub(b IO) IO { return IO{max(0, a.Read-b.Read), max(0, a.Written-b.Written)} }

// Max returns the maximum of each.
func (a IO) Max(b IO) IO { return IO{max(a.Read, b.Read), max(a.Written, b.Written)} }

// ReadIO reads /proc/PID/io, even of a process that has ended but has not been waited for. It
// needs the rights to trace the process. The error wraps fs.ErrNotExist when there is no such
// process.
func ReadIO(pid int) (IO, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if errors.Is(err, syscall.ESRCH) { // it ended between opening and reading
		err = fs.ErrNotExist
	}
	if err != nil {
		return IO{}, fmt.Errorf("I/O of process %d: %w", pid, err)
	}
	return parseIO(data)
}

func parseIO(data []byte) (IO, error) {
	var r, w, cancelled int64
	found := 0
	for line := range bytes.Lines(data) {
		key, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		var to *int64
		switch string(key) {
		case "read_bytes":
			to = &r
		case "write_bytes":
			to = &w
		case "cancelled_write_bytes":
			to = &cancelled
		default:
			continue
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		if !ok || err != nil || n < 0 {
			return IO{}, fmt.Errorf("I/O of a process: %q is no count", line)
		}
		*to, found = n, found+1
	}
	if found < 2 {
		return IO{}, errors.New("I/O of a process: the kernel does not count it")
	}
	// One process may cancel what another dirtied.
	return IO{Read: r, Written: max(0, w-cancelled)}, nil
}

// Resident returns the memory of a process that no file backs, in bytes: anonymous and shared.
// Sums over processes count shared memory repeatedly.
func Resident(pid int) (int64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return parseResident(data)
}

func parseResident(data []byte) (int64, error) {
	sum := int64(0)
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if k := string(key); k != "RssAnon" && k != "RssShmem" {
			continue
		}
		text, ok := strings.CutSuffix(strings.TrimSpace(string(value)), " kB")
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || n < 0 || n > 1<<50 {
			return 0, fmt.Errorf("memory of a process: %q is no amount", line)
		}
		sum += n << 10
	}
	return sum, nil // a zombie has no such lines
}

// Tree returns pid and its descendants according to the kernel: a process whose parent has
// ended has another one.
func Tree(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out) && len(out) < maxTree; i++ {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", out[i]))
		if err != nil {
			continue
		}
		for _, t := range tasks {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", out[i], t.Name()))
			if err != nil {
				continue
			}
			for _, f := range strings.Fields(string(data)) {
				if n, err := strconv.Atoi(f); err == nil {
					out = append(out, n)
				}
			}
		}
	}
	return out
}

// maxTree bounds how many processes of one job are visited.
const maxTree = 4096

// Parent returns the parent of a process.
func Parent(pid int) (int, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("parent of process %d: %w", pid, err)
	}
	// The name, in parentheses, may contain any byte.
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(") "))
	f := strings.Fields(string(rest))
	if !ok || len(f) < 2 {
		return 0, fmt.Errorf("parent of process %d: damaged record", pid)
	}
	return strconv.Atoi(f[1])
}

// UIDs returns the user ids of a process: real, effective, saved and file system.
func UIDs(pid int) (uids [4]uint32, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return uids, fmt.Errorf("owner of process %d: %w", pid, err)
	}
	for line := range bytes.Lines(data) {
		value, ok := bytes.CutPrefix(line, []byte("Uid:"))
		if !ok {
			continue
		}
		f := bytes.Fields(value)
		if len(f) != len(uids) {
			break
		}
		for i := range f {
			n, err := strconv.ParseUint(string(f[i]), 10, 32)
			if err != nil {
				return uids, fmt.Errorf("owner of process %d: %w", pid, err)
			}
			uids[i] = uint32(n)
		}
		return uids, nil
	}
	return uids, fmt.Errorf("owner of process %d: the kernel does not say", pid)
}
