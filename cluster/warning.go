package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Warning is a signal that a job gets once, some time before its time limit
// ends it. The zero value is none.
type Warning struct {
	// Signal is one of WarningSignals, "" for none. A name and not a number:
	// numbers differ from system to system.
	Signal string
	// Before is how long before the limit it is sent.
	Before time.Duration
	// First sends it to the first process alone, which of a batch script is the
	// shell. Otherwise all others get it, and the first too unless it is that
	// shell, which would end by it, and the job with it.
	First bool
}

// Bounds of Warning.Before; the upper one is Slurm's.
const (
	DefaultWarning = time.Minute
	MinWarning     = time.Second
	MaxWarning     = 65535 * time.Second
)

// WarningSignals are the signals that may warn, without SIG. KILL and STOP
// would not warn but end or halt.
func WarningSignals() []string {
	return []string{"USR1", "USR2", "HUP", "INT", "QUIT", "TERM", "ALRM", "URG", "CONT", "XCPU"}
}

// Set reports whether there is a warning at all.
func (w Warning) Set() bool { return w.Signal != "" }

// String is the form that ParseWarning reads, "" for none.
func (w Warning) String() string {
	if !w.Set() {
		return ""
	}
	out := w.Signal + "@" + strconv.FormatInt(int64(w.Before/time.Second), 10)
	if w.First {
		out = "B:" + out
	}
	return out
}

// ParseWarning reads [B:]SIGNAL[@TIME], such as USR1, B:SIGUSR1@90 or USR1@2m:
// a number alone is seconds. Faults are *Error of CodeInvalid.
func ParseWarning(text string) (Warning, error) {
	rest, first := strings.CutPrefix(text, "B:")
	name, before, timed := strings.Cut(rest, "@")
	w := Warning{Signal: strings.TrimPrefix(strings.ToUpper(name), "SIG"), Before: DefaultWarning, First: first}
	if w.Signal == "" {
		return Warning{}, Errorf(CodeInvalid, "signal %s: want SIGNAL, SIGNAL@TIME or B:SIGNAL@TIME, such as USR1@60", QuoteShort(text))
	}
	if timed {
		d, err := time.ParseDuration(before)
		if n, bare := strconv.ParseUint(before, 10, 31); bare == nil {
			d, err = time.Duration(n)*time.Second, nil
		}
		if err != nil {
			return Warning{}, Errorf(CodeInvalid, "signal %s: %s is not a time before the limit; want seconds or a span, such as USR1@60 or USR1@2m", QuoteShort(text), QuoteShort(before))
		}
		w.Before = d
	}
	if err := w.Check(); err != nil {
		return Warning{}, err
	}
	return w, nil
}

// Check tells what is wrong with w, as an *Error of CodeInvalid.
func (w Warning) Check() error {
	switch {
	case w == Warning{}:
		return nil
	case !slices.Contains(WarningSignals(), w.Signal):
		return Errorf(CodeInvalid, "signal: %s is not one of %s", QuoteShort(w.Signal), strings.Join(WarningSignals(), ", "))
	case w.Before < MinWarning || w.Before > MaxWarning:
		return Errorf(CodeInvalid, "signal: %s before the time limit is outside %s to %d s", TimeText(w.Before), TimeText(MinWarning), MaxWarning/time.Second)
	case w.Before%time.Second != 0:
		return Errorf(CodeInvalid, "signal: %s before the time limit is no whole number of seconds", w.Before)
	}
	return nil
}

// checkWarning holds the warning against the time limit, where there is one.
func (s *Spec) checkWarning() error {
	if err := s.Warning.Check(); err != nil {
		return err
	}
	if s.Warning.Set() && s.TimeLimit > 0 && s.Warning.Before >= s.TimeLimit {
		return Errorf(CodeInvalid, "signal and time: %s before the end of a job of %s is no later than its start; warn later, or ask for more time", TimeText(s.Warning.Before), TimeText(s.TimeLimit))
	}
	return nil
}
