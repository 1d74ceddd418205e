// Package units parses and formats the amounts that people type: memory,
// time, percentages, counts of GPUs. The forms are Slurm's, and Go's where
// the two do not conflict. Any other form is refused with one line that names
// the forms: a scheduler that guessed would be wrong for somebody.
package units

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// Bounds of what the parsers accept.
const (
	MinMiB     = 1
	MaxMiB     = cluster.MaxMemMiB
	MinTime    = time.Second
	MaxTime    = cluster.MaxTimeDays * 24 * time.Hour
	MinGPUs    = 1
	MaxGPUs    = cluster.MaxGPUsPerJob
	day        = 24 * time.Hour
	memForms   = "want MiB as a whole number (6144), or a whole number with K, M, G, T or KiB, MiB, GiB, TiB (16G = 16GB = 16GiB = 16384), from 1M to 8T"
	timeForms  = "want minutes, mm:ss, hh:mm:ss, d-hh, d-hh:mm or d-hh:mm:ss, or numbers with d, h, m, s (90s, 10m, 1h30m), from 1s to 30d"
	pctForms   = "want a whole number from 0 to 100, with or without %"
	countForms = "want a whole number from 1 to 16"
)

// ParseMiB reads an amount of memory as Slurm's --mem does: powers of 1024,
// even with GB, and MiB without a unit. Units may be in lower case.
func ParseMiB(s string) (int64, error) {
	refuse := func(why string) (int64, error) {
		return 0, fmt.Errorf("memory %s: %s%s", escape.Quote(s), why, memForms)
	}
	digits := strings.TrimRight(s, "KMGTIBkmgtib")
	n, ok := wholeNumber(digits)
	if !ok {
		return refuse("")
	}
	var kib int64 // per unit
	switch strings.ToLower(s[len(digits):]) {
	case "", "m", "mb", "mib":
		kib = 1 << 10
	case "k", "kb", "kib":
		kib = 1
	case "g", "gb", "gib":
		kib = 1 << 20
	case "t", "tb", "tib":
		kib = 1 << 30
	default:
		return refuse("")
	}
	if n > MaxMiB<<10/kib {
		return refuse("too much: ")
	}
	total := n * kib
	if total%(1<<10) != 0 {
		return refuse("not a whole number of MiB: ")
	}
	if total>>10 < MinMiB {
		return refuse("too little: ")
	}
	return total >> 10, nil
}

// FormatMiB writes an amount that ParseMiB reads back: 16GiB, 1500MiB.
func FormatMiB(mib int64) string {
	switch {
	case mib != 0 && mib%(1<<20) == 0:
		return strconv.FormatInt(mib>>20, 10) + "TiB"
	case mib != 0 && mib%(1<<10) == 0:
		return strconv.FormatInt(mib>>10, 10) + "GiB"
	default:
		return strconv.FormatInt(mib, 10) + "MiB"
	}
}

// HumanMiB writes an amount for tables, rounded to a tenth: 23.4 GiB.
func HumanMiB(mib int64) string { return cluster.MemText(mib) }

// ParsePercent reads 0 to 100, with or without a per cent sign.
func ParsePercent(s string) (int, error) {
	n, ok := wholeNumber(strings.TrimSuffix(s, "%"))
	if !ok || n > 100 {
		return 0, fmt.Errorf("percentage %s: %s", escape.Quote(s), pctForms)
	}
	return int(n), nil
}

// ParseGPUs reads a number of GPUs, 1 to 16.
func ParseGPUs(s string) (int, error) {
	n, ok := wholeNumber(s)
	if !ok || n < MinGPUs || n > MaxGPUs {
		return 0, fmt.Errorf("number of GPUs %s: %s", escape.Quote(s), countForms)
	}
	return int(n), nil
}

// ParsePart reads a fraction of a GPU, 0.01 to 0.99, in thousandths; false if
// it is none.
func ParsePart(s string) (milli int64, ok bool) {
	digits, ok := strings.CutPrefix(s, "0.")
	n, whole := digitsOf(digits)
	if !ok || !whole || len(digits) > 2 || n == 0 {
		return 0, false
	}
	if len(digits) == 1 {
		n *= 10
	}
	return n * 10, true
}

// wholeNumber reads 1 to 18 decimal digits without a leading zero, except
// for zero itself: 010 is 8 to some and 10 to others.
func wholeNumber(s string) (int64, bool) {
	if len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	return digitsOf(s)
}

func digitsOf(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
