package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// IdlePolicy says what becomes of jobs whose GPUs stand idle. The zero value is
// none. Each stage counts how long they have stood idle on end; 0 leaves it out.
type IdlePolicy struct {
	// BelowMilli is the mean utilization, in thousandths, below which GPUs count as
	// idle over a Window.
	BelowMilli int64
	Window     time.Duration
	// Grace is the time after its start in which a job is not looked at.
	Grace time.Duration
	// Warn is when the owner is told, Shrink when the share is cut to what is used
	// of it, End when the job is ended. From Window on it is reported.
	Warn, Shrink, End time.Duration
	// MaxOK bounds how much longer a job may ask for; see Spec.IdleOK.
	MaxOK time.Duration
}

// IdleStage is how far the policy has gone with an attempt.
type IdleStage uint8

// The stages, in order.
const (
	IdleNone IdleStage = iota
	IdleReported
	IdleWarned
	IdleShrunk
	IdleEnded
)

// String names a stage.
func (s IdleStage) String() string {
	return [...]string{"", "reported", "warned", "shrunk", "ended"}[min(s, IdleEnded)]
}

// On reports whether there is a policy.
func (p IdlePolicy) On() bool { return p.Window > 0 }

// Stage is how far a job has come whose GPUs have stood idle for so long, and
// that asked for ok.
func (p IdlePolicy) Stage(idle, ok time.Duration) IdleStage {
	idle -= min(max(0, ok), p.MaxOK)
	at := func(d time.Duration) bool { return d > 0 && idle >= d }
	switch {
	case !p.On() || idle < p.Window:
		return IdleNone
	case at(p.End):
		return IdleEnded
	case at(p.Shrink):
		return IdleShrunk
	case at(p.Warn):
		return IdleWarned
	}
	return IdleReported
}

// String is the form that ParseIdlePolicy reads, "" for none.
func (p IdlePolicy) String() string {
	if !p.On() {
		return ""
	}
	out := fmt.Sprintf("below=%g%%,window=%s", float64(p.BelowMilli)/10, short(p.Window))
	for _, f := range []struct {
		key string
		d   time.Duration
	}{{"grace", p.Grace}, {"warn", p.Warn}, {"shrink", p.Shrink}, {"end", p.End}, {"ok", p.MaxOK}} {
		if f.d > 0 {
			out += "," + f.key + "=" + short(f.d)
		}
	}
	return out
}

// ParseIdlePolicy reads KEY=VALUE with commas between them, such as
// below=5%,window=30m,grace=10m,warn=1h,shrink=2h,end=4h,ok=8h; "" and none are
// no policy. Faults are *Error of CodeInvalid.
func ParseIdlePolicy(text string) (IdlePolicy, error) {
	var p IdlePolicy
	if text == "" || text == "none" {
		return p, nil
	}
	spans := map[string]*time.Duration{"window": &p.Window, "grace": &p.Grace, "warn": &p.Warn, "shrink": &p.Shrink, "end": &p.End, "ok": &p.MaxOK}
	seen := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(item, "=")
		if seen[key] {
			return IdlePolicy{}, Errorf(CodeInvalid, "idle: %s is there twice", QuoteShort(key))
		}
		seen[key] = true
		if key == "below" {
			f, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
			if err != nil || !(f > 0 && f <= 50) {
				return IdlePolicy{}, Errorf(CodeInvalid, "idle: below %s is no percentage above 0 and up to 50, such as 5%%", QuoteShort(value))
			}
			p.BelowMilli = max(1, int64(f*10))
			continue
		}
		to := spans[key]
		d, err := time.ParseDuration(value)
		if to == nil || err != nil {
			return IdlePolicy{}, Errorf(CodeInvalid, "idle: %s is not one of below=PERCENT, window, grace, warn, shrink, end and ok=TIME, such as warn=1h", QuoteShort(item))
		}
		*to = d
	}
	return p, p.Check()
}

// Check tells what is wrong with p, as an *Error of CodeInvalid.
func (p IdlePolicy) Check() error {
	const most = MaxTimeDays * 24 * time.Hour
	if p == (IdlePolicy{}) {
		return nil
	}
	for _, d := range []time.Duration{p.Window, p.Grace, p.Warn, p.Shrink, p.End, p.MaxOK} {
		if d < 0 || d > most || d%time.Second != 0 {
			return Errorf(CodeInvalid, "idle: %s is outside 0 to %d days, or no whole number of seconds", TimeText(d), MaxTimeDays)
		}
	}
	switch {
	case p.BelowMilli < 1 || p.BelowMilli > 500:
		return Errorf(CodeInvalid, "idle: below is missing or outside 0.1 to 50 %%; say below which utilization a GPU is idle, such as below=5%%")
	case p.Window < 10*time.Second:
		return Errorf(CodeInvalid, "idle: a window of %s is below the least of 10 s", p.Window)
	}
	last := p.Window
	for _, d := range []time.Duration{p.Warn, p.Shrink, p.End} {
		if d > 0 && d < last {
			return Errorf(CodeInvalid, "idle: %s comes before %s; want window, warn, shrink and end in this order", d, last)
		}
		last = max(last, d)
	}
	return nil
}

// IdleMark is how far the idle policy has gone with an attempt.
type IdleMark struct {
	Stage IdleStage
	// Since is when its GPUs fell idle, At when the mark was made. BusyMs and
	// KnownMs are what its use had come to then: thousandths of a GPU times
	// milliseconds, and the milliseconds in which it was known.
	Since, At       Time
	BusyMs, KnownMs int64
	// Was are its shares before they were cut, empty while they are not.
	Was []GPUShare
}
