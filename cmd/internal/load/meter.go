package load

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used so far.
type usage struct {
	at         time.Time
	cpu        time.Duration
	rssB, topB int64
	writtenB   int64 // to storage
}

// usageOf reads what a process has used.
func usageOf(pid int) (u usage, err error) {
	u.at = time.Now()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, fmt.Errorf("what the coordinator uses: %w", err)
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const hz = 100 // USER_HZ, on every architecture that Go runs on
	u.cpu = time.Duration(number(f[11])+number(f[12])) * time.Second / hz
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, fmt.Errorf("what the coordinator uses: %w", err)
	}
	u.rssB, u.topB = 1024*field(status, "VmRSS:"), 1024*field(status, "VmHWM:")
	if io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)); err == nil {
		u.writtenB = field(io, "write_bytes:")
	}
	return u, nil
}

// field returns the number behind a word in a file of /proc, 0 without it.
func field(text []byte, word string) int64 {
	_, rest, _ := strings.Cut("\n"+string(text), "\n"+word)
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	return number(f[0])
}

// number returns a number that the kernel wrote, 0 if it is none.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// cores returns how many cores were used since before.
func (u usage) cores(before usage) float64 {
	return (u.cpu - before.cpu).Seconds() / u.at.Sub(before.at).Seconds()
}

// metrics reads what a coordinator exports, by name with labels.
func metrics(ctx context.Context, addr string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics of the coordinator: %w", err)
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		name, value, ok := strings.Cut(s.Text(), "} ")
		if ok {
			name += "}"
		} else {
			name, value, _ = strings.Cut(s.Text(), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = v
		}
	}
	return out, nil
}

// longest is the metric of the longest operation of a kind.
func longest(op string) string { return fmt.Sprintf("berth_raft_longest_seconds{op=%q}", op) }

// loadAverage returns how many tasks of the machine ran or wanted to in the last minute.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}
