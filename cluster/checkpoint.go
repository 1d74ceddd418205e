package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Checkpoint says how a job saves its state when it must make room for
// others: its first process gets the signal, and has the grace to save and to
// end before it is ended. A job that has none loses all that it did, and is
// never preempted. The zero value is none.
type Checkpoint struct {
	// Signal is one of CheckpointSignals, "" for no hook. A name and not a
	// number: numbers differ from system to system.
	Signal string
	// Grace is from MinCheckpointGrace to MaxCheckpointGrace.
	Grace time.Duration
}

// Bounds of Checkpoint.Grace.
const (
	DefaultCheckpointGrace = time.Minute
	MinCheckpointGrace     = time.Second
	MaxCheckpointGrace     = 10 * time.Minute
)

// CheckpointSignals are the signals that a hook may use, without SIG.
func CheckpointSignals() []string { return []string{"USR1", "USR2", "HUP", "INT", "TERM"} }

// Set reports whether there is a hook at all.
func (c Checkpoint) Set() bool { return c.Signal != "" }

// String returns the form that ParseCheckpoint reads, "" for none.
func (c Checkpoint) String() string {
	if !c.Set() {
		return ""
	}
	return c.Signal + "@" + c.Grace.String()
}

// ParseCheckpoint reads SIGNAL or SIGNAL@GRACE, such as USR1, SIGUSR1@90 or
// USR1@2m: a number alone is seconds. Faults are *Error of CodeInvalid.
func ParseCheckpoint(text string) (Checkpoint, error) {
	name, grace, timed := strings.Cut(text, "@")
	c := Checkpoint{Signal: strings.TrimPrefix(strings.ToUpper(name), "SIG"), Grace: DefaultCheckpointGrace}
	if c.Signal == "" {
		return Checkpoint{}, Errorf(CodeInvalid, "checkpoint %s: want SIGNAL or SIGNAL@GRACE, such as USR1@60s", QuoteShort(text))
	}
	if timed {
		d, err := time.ParseDuration(grace)
		if n, bare := strconv.ParseUint(grace, 10, 31); bare == nil {
			d, err = time.Duration(n)*time.Second, nil
		}
		if err != nil {
			return Checkpoint{}, Errorf(CodeInvalid, "checkpoint %s: the grace %s is not a time; want seconds or a span, such as USR1@60 or USR1@2m", QuoteShort(text), QuoteShort(grace))
		}
		c.Grace = d
	}
	if err := c.Check(); err != nil {
		return Checkpoint{}, err
	}
	return c, nil
}

// Check tells what is wrong with c, as an *Error of CodeInvalid.
func (c Checkpoint) Check() error {
	switch {
	case c == Checkpoint{}:
		return nil
	case !slices.Contains(CheckpointSignals(), c.Signal):
		return Errorf(CodeInvalid, "checkpoint: signal %s is not one of %s", QuoteShort(c.Signal), strings.Join(CheckpointSignals(), ", "))
	case c.Grace < MinCheckpointGrace || c.Grace > MaxCheckpointGrace:
		return Errorf(CodeInvalid, "checkpoint: a grace of %s is outside %s to %s", TimeText(c.Grace), TimeText(MinCheckpointGrace), TimeText(MaxCheckpointGrace))
	}
	return nil
}
