package health

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
)

// Line is one record of the kernel log.
type Line struct {
	// Seq increases by one from record to record since boot.
	Seq uint64
	// Since is when it was written, counted from boot.
	Since time.Duration
	Text  string
}

// ParseLine parses a record as /dev/kmsg returns it: "6,339,5140900,-;text". It rejects what
// programs wrote there, and continuations of the previous record: only the kernel speaks for
// the hardware.
func ParseLine(s string) (Line, bool) {
	head, text, ok := strings.Cut(s, ";")
	if !ok || strings.HasPrefix(s, " ") {
		return Line{}, false
	}
	f := strings.Split(head, ",")
	if len(f) < 3 {
		return Line{}, false
	}
	prio, err1 := strconv.ParseUint(f[0], 10, 32)
	seq, err2 := strconv.ParseUint(f[1], 10, 64)
	us, err3 := strconv.ParseUint(f[2], 10, 53)
	if err1 != nil || err2 != nil || err3 != nil || prio>>3 != 0 {
		return Line{}, false
	}
	return Line{Seq: seq, Since: time.Duration(min(us, 1<<52)) * time.Microsecond, Text: strings.TrimSuffix(text, "\n")}, true
}

// Report is what a line of the kernel log reports about a GPU.
type Report struct {
	// PCI is the GPU's bus location in the form of PCIKey.
	PCI string
	// Xid is 0 for a GPU that fell off the bus without one.
	Xid int
	// PID is the process that the driver names, 0 if none.
	PID    int
	Detail string
}

const offTheBus = "fallen off the bus"

// ParseReport parses a line of NVIDIA's driver:
//
//	NVRM: Xid (PCI:0000:3b:00): 79, pid=2847, name=python3, GPU has fallen off the bus.
//	NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
//
// ok is false for anything else.
func ParseReport(text string) (r Report, ok bool) {
	rest, ok := strings.CutPrefix(text, "NVRM: ")
	if !ok {
		return Report{}, false
	}
	if x, isXid := strings.CutPrefix(rest, "Xid ("); isXid {
		return parseXid(x)
	}
	if !strings.Contains(rest, offTheBus) {
		return Report{}, false
	}
	for _, word := range strings.Fields(rest) {
		if key, good := PCIKey(strings.TrimRight(word, ":,.")); good {
			return Report{PCI: key, Detail: clip(rest)}, true
		}
	}
	return Report{}, false
}

func parseXid(s string) (Report, bool) {
	place, rest, ok := strings.Cut(s, "):")
	if !ok {
		return Report{}, false
	}
	key, ok := PCIKey(place)
	if !ok {
		return Report{}, false
	}
	rest = strings.TrimSpace(rest)
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	code, err := strconv.ParseUint(rest[:n], 10, 16)
	if err != nil || code == 0 {
		return Report{}, false
	}
	r := Report{PCI: key, Xid: int(code), Detail: clip(strings.TrimLeft(rest[n:], ", "))}
	if _, after, found := strings.Cut(rest, "pid="); found {
		digits, _, _ := strings.Cut(after, ",")
		if pid, err := strconv.ParseUint(strings.Trim(digits, "' "), 10, 31); err == nil {
			r.PID = int(pid)
		}
	}
	return r, true
}

// clip keeps what is worth showing, as printable characters.
func clip(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == 0xfffd {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, ""))
	for len(s) > 120 {
		s = strings.ToValidUTF8(s[:120], "")
	}
	return s
}

// PCIKey returns a canonical form of a GPU's PCI location, "0000:3b:00" for PCI:0000:3b:00,
// 0000:3b:00.0 and 00000000:3B:00.0 alike: domain, bus and device. ok is false for anything
// else.
func PCIKey(s string) (key string, ok bool) {
	s = strings.TrimPrefix(s, "PCI:")
	s, _, _ = strings.Cut(s, ".")
	f := strings.Split(s, ":")
	if len(f) == 2 {
		f = append([]string{"0"}, f...)
	}
	if len(f) != 3 {
		return "", false
	}
	var n [3]uint64
	for i := range f {
		v, err := strconv.ParseUint(f[i], 16, 32)
		if err != nil || len(f[i]) > 8 || i > 0 && v > 0xff {
			return "", false
		}
		n[i] = v
	}
	hex := func(v uint64, width int) string {
		h := strconv.FormatUint(v, 16)
		return strings.Repeat("0", max(0, width-len(h))) + h
	}
	return hex(n[0], 4) + ":" + hex(n[1], 2) + ":" + hex(n[2], 2), true
}

const (
	kmsgPoll   = 200 * time.Millisecond // for a log that cannot signal new records
	kmsgReopen = 5 * time.Second
	maxKmsg    = 8192 // of one record
)

// follow passes every record of the kernel log at path to f until ctx ends, beginning with
// those that the kernel still holds. It calls idle whenever there is no more for now. In tests,
// path may be a plain file or a FIFO.
func follow(ctx context.Context, path string, f func(Line), idle func()) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		idle()
		return err
	}
	defer context.AfterFunc(ctx, func() { file.Close() })()
	defer file.Close()
	// The poller would wait for news without reporting that there are none.
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	buf, rest := make([]byte, 2*maxKmsg), []byte(nil)
	for {
		n, rerr := 0, error(nil)
		if err := conn.Read(func(fd uintptr) bool {
			n, rerr = syscall.Read(int(fd), buf)
			return true
		}); err != nil {
			return err
		}
		switch {
		case n > 0:
			rest = feed(append(rest, buf[:n]...), f)
			continue
		case errors.Is(rerr, syscall.EPIPE), errors.Is(rerr, syscall.EINTR):
			continue // the kernel overwrote what was not read yet: continue with the next
		case rerr != nil && !errors.Is(rerr, syscall.EAGAIN) && !errors.Is(rerr, io.EOF):
			return rerr
		}
		idle()
		if !wait.Sleep(ctx, kmsgPoll) {
			return ctx.Err()
		}
	}
}

// feed passes complete lines to f and returns the rest.
func feed(data []byte, f func(Line)) []byte {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			if len(data) > 2*maxKmsg {
				return nil // not a kernel log
			}
			return data
		}
		if l, ok := ParseLine(string(data[:i])); ok {
			f(l)
		}
		data = data[i+1:]
	}
}
