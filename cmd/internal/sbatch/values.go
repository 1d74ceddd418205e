package sbatch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var errNumber = Message("Invalid numeric value")

// count reads a whole number from 1.
func count(v string) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n < 1 || !digits(v) {
		return 0, errNumber
	}
	return n, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// ParseTime reads a time limit: minutes, minutes:seconds,
// hours:minutes:seconds, days-hours, days-hours:minutes,
// days-hours:minutes:seconds, or a word for none. Fields may pass 59, as in
// 90:00. Zero, and false, mean no limit.
func ParseTime(v string) (limit time.Duration, limited bool, err error) {
	bad := Message("Invalid --time specification")
	switch strings.ToLower(v) {
	case "unlimited", "infinite", "-1":
		return 0, false, nil
	}
	days, clock, dashed := strings.Cut(v, "-")
	units := map[int][]time.Duration{1: {time.Minute}, 2: {time.Minute, time.Second}, 3: {time.Hour, time.Minute, time.Second}}
	if dashed {
		units = map[int][]time.Duration{1: {time.Hour}, 2: {time.Hour, time.Minute}, 3: {time.Hour, time.Minute, time.Second}}
	} else {
		clock = v
	}
	fields := strings.Split(clock, ":")
	if len(fields) > 3 {
		return 0, false, bad
	}
	unit := units[len(fields)]
	if dashed {
		fields, unit = append([]string{days}, fields...), append([]time.Duration{24 * time.Hour}, unit...)
	}
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || !digits(f) || n > int64(math.MaxInt32) {
			return 0, false, bad
		}
		if limit > maxTime || time.Duration(n) > maxTime/unit[i] {
			limit = maxTime + 1 // more than anybody can run
			continue
		}
		limit += time.Duration(n) * unit[i]
	}
	return limit, limit > 0, nil
}

// maxTime is a hundred years: far above any limit, far below overflow.
const maxTime = 100 * 365 * 24 * time.Hour

// ParseMem reads an amount of memory in MiB: a whole number, in M unless
// followed by K, M, G or T. Kilobytes round up.
func ParseMem(v string) (mib int64, err error) {
	bad := errors.New("want a whole number, with K, M, G or T for a unit other than M")
	text := strings.TrimRight(v, "KMGTkmgtBb")
	n, perr := strconv.ParseInt(text, 10, 64)
	if perr != nil || !digits(text) {
		return 0, bad
	}
	switch strings.ToUpper(v[len(text):]) {
	case "", "M", "MB":
		mib = n
	case "K", "KB":
		mib = n/1024 + min(1, n%1024)
	case "G", "GB":
		mib = scaled(n, 1<<10)
	case "T", "TB":
		mib = scaled(n, 1<<20)
	default:
		return 0, bad
	}
	return mib, nil
}

func scaled(n, by int64) int64 {
	if n > math.MaxInt64/by {
		return math.MaxInt64
	}
	return n * by
}

// ParseNodes reads a number of nodes, or a minimum and a maximum.
func ParseNodes(v string) (least, most int64, err error) {
	bad := fmt.Errorf("%q is not a valid node count", v)
	one := func(s string) (int64, error) {
		by := int64(1)
		switch {
		case strings.HasSuffix(s, "k"), strings.HasSuffix(s, "K"):
			s, by = s[:len(s)-1], 1024
		case strings.HasSuffix(s, "m"), strings.HasSuffix(s, "M"):
			s, by = s[:len(s)-1], 1<<20
		}
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || !digits(s) {
			return 0, bad
		}
		return n * by, nil
	}
	a, b, ranged := strings.Cut(v, "-")
	if least, err = one(a); err != nil {
		return 0, 0, err
	}
	most = least
	if ranged {
		if most, err = one(b); err != nil {
			return 0, 0, err
		}
	}
	if most < least {
		return 0, 0, Message(fmt.Sprintf("Maximum node count %d is less than minimum node count %d", most, least))
	}
	return least, most, nil
}

// Gres is one requested generic resource.
type Gres struct {
	Name, Type string
	Count      int64
}

// ParseGres reads name[:type][:count], separated by commas; "none" is nothing.
func ParseGres(v string) ([]Gres, error) {
	if v == "none" || v == "NONE" {
		return nil, nil
	}
	var out []Gres
	for item := range strings.SplitSeq(v, ",") {
		item = strings.TrimPrefix(item, "gres:")
		parts := strings.Split(item, ":")
		g := Gres{Name: parts[0], Count: 1}
		if g.Name == "" || len(parts) > 3 || strings.ContainsAny(item, "= \t") {
			return nil, Message("Invalid generic resource (gres) specification")
		}
		rest := parts[1:]
		if n := len(rest); n > 0 {
			if c, ok := gresCount(rest[n-1]); ok {
				g.Count, rest = c, rest[:n-1]
			} else if n == 2 {
				return nil, Message("Invalid generic resource (gres) specification")
			}
		}
		if len(rest) > 1 || len(rest) == 1 && rest[0] == "" {
			return nil, Message("Invalid generic resource (gres) specification")
		}
		if len(rest) == 1 {
			g.Type = rest[0]
		}
		out = append(out, g)
	}
	return out, nil
}

// gresCount reads a count with Slurm's suffixes; they are powers of 1024.
func gresCount(s string) (int64, bool) {
	by := int64(1)
	if s != "" {
		if i := strings.IndexByte("kmgtp", s[len(s)-1]|0x20); i >= 0 {
			s, by = s[:len(s)-1], 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || !digits(s) {
		return 0, false
	}
	return n * by, true
}

// ParseGPUs reads [type:]count, separated by commas, as --gpus takes it.
func ParseGPUs(v string) ([]Gres, error) {
	var out []Gres
	for item := range strings.SplitSeq(v, ",") {
		typ, num, typed := strings.Cut(item, ":")
		if !typed {
			typ, num = "", item
		}
		n, ok := gresCount(num)
		if !ok || typed && typ == "" {
			return nil, fmt.Errorf("%q is not a number of GPUs; want a number, or type:number", v)
		}
		out = append(out, Gres{"gpu", typ, n})
	}
	return out, nil
}

// Array is a set of indices and how many of them may run at once, 0 for all.
type Array struct {
	Ranges []Range
	AtOnce int64
}

// Range is the indices First, First+Step, … up to Last.
type Range struct{ First, Last, Step int64 }

// MaxArrayIndex is the largest index that ParseArray accepts.
const MaxArrayIndex = 4_000_000

// ParseArray reads 0-15, 1,3,5-9:2 and the like, with %N for how many may run
// at once.
func ParseArray(v string) (Array, error) {
	bad := Message(fmt.Sprintf("Invalid job array specification: %q", v))
	list, at, throttled := strings.Cut(v, "%")
	var a Array
	num := func(s string) (int64, bool) {
		n, err := strconv.ParseInt(s, 10, 32)
		return n, err == nil && digits(s) && n <= MaxArrayIndex
	}
	if throttled {
		n, ok := num(at)
		if !ok {
			return Array{}, bad
		}
		a.AtOnce = n
	}
	for item := range strings.SplitSeq(list, ",") {
		span, step, stepped := strings.Cut(item, ":")
		first, last, ranged := strings.Cut(span, "-")
		r := Range{Step: 1}
		var ok bool
		if r.First, ok = num(first); !ok {
			return Array{}, bad
		}
		r.Last = r.First
		if ranged {
			if r.Last, ok = num(last); !ok || r.Last < r.First {
				return Array{}, bad
			}
		}
		if stepped {
			if r.Step, ok = num(step); !ok || r.Step < 1 || !ranged {
				return Array{}, bad
			}
		}
		a.Ranges = append(a.Ranges, r)
	}
	return a, nil
}

// Signal is the request of --signal.
type Signal struct {
	Name   string
	Batch  bool
	Before time.Duration
}

var signalNames = []string{"HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "STOP", "CONT", "TSTP", "ALRM", "PIPE", "ABRT", "URG", "XCPU"}

// ParseSignal reads [{R|B|RB}:]signal[@seconds].
func ParseSignal(v string) (Signal, error) {
	bad := Message("Invalid --signal specification")
	s := Signal{Before: time.Minute}
	if flags, rest, ok := strings.Cut(v, ":"); ok {
		if flags == "" || strings.Trim(flags, "RBrb") != "" {
			return s, bad
		}
		s.Batch, v = strings.ContainsAny(flags, "Bb"), rest
	}
	name, at, timed := strings.Cut(v, "@")
	if timed {
		n, err := strconv.ParseInt(at, 10, 32)
		if err != nil || !digits(at) || n > 65535 {
			return s, bad
		}
		s.Before = time.Duration(n) * time.Second
	}
	s.Name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if n, err := strconv.Atoi(s.Name); err == nil {
		if n < 1 || n > 64 || !digits(s.Name) {
			return s, bad
		}
		s.Name = strings.TrimPrefix(unix.SignalName(syscall.Signal(n)), "SIG")
		if s.Name == "" {
			s.Name = strconv.Itoa(n) // a real-time signal
		}
		return s, nil
	}
	if !slices.Contains(signalNames, s.Name) {
		return s, bad
	}
	return s, nil
}

// Patterns returns the letters of the patterns in a file name, each once, in
// order, and those unknown to Slurm, which leaves them unchanged.
func Patterns(name string) (known, unknown string) {
	if strings.Contains(name, `\`) { // a backslash disables them
		return "", ""
	}
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			continue
		}
		k := i + 1
		for k < len(name) && name[k] >= '0' && name[k] <= '9' {
			k++
		}
		if k == len(name) {
			return known, unknown
		}
		to := &unknown
		if strings.IndexByte("%AaJjNnstux", name[k]) >= 0 {
			to = &known
		}
		if strings.IndexByte(*to, name[k]) < 0 {
			*to += string(name[k])
		}
		i = k
	}
	return known, unknown
}
