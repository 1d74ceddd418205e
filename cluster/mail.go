package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// MailEvents is a set of events that a job's owner wants mail about.
type MailEvents uint16

// The events, by their names in capitals and in Slurm's order. MailEnd is the end
// of any kind, MailFail an end other than COMPLETED. The time-limit marks report
// that so much of the limit is used; MailIdle, which is not Slurm's, that its GPUs
// are idle and what happens to it. Without MailArrayTasks there is one mail for a
// whole array. Nothing is staged out, so MailStageOut is accepted but never sent.
const (
	MailArrayTasks MailEvents = 1 << iota
	MailInvalidDepend
	MailBegin
	MailEnd
	MailFail
	MailRequeue
	MailStageOut
	MailTimeLimit50
	MailTimeLimit80
	MailTimeLimit90
	MailTimeLimit
	MailIdle

	mailKnown = MailIdle<<1 - 1
	// MailMarks are the events that a clock alone triggers.
	MailMarks = MailTimeLimit50 | MailTimeLimit80 | MailTimeLimit90
	// MailAll is what ALL stands for, as in Slurm.
	MailAll = MailInvalidDepend | MailBegin | MailEnd | MailFail | MailRequeue | MailStageOut
)

var mailNames = [...]string{"ARRAY_TASKS", "INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT", "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90", "TIME_LIMIT", "IDLE"}

// Bounds of mail recipients.
const (
	maxMailUser  = 256
	maxMailUsers = 5
)

// MaxIdleOK bounds Spec.IdleOK.
const MaxIdleOK = MaxTimeDays * 24 * time.Hour

// Mail says whom to notify about a job, and of which events. The zero value is
// nobody.
type Mail struct {
	Events MailEvents
	// To is an address, or several separated by commas; "" is the owner.
	To string
}

// ParseMailEvents parses comma-separated names, in any case; ALL is MailAll, and
// NONE anywhere means no mail at all. An unknown name is an *Error of CodeInvalid.
func ParseMailEvents(text string) (MailEvents, error) {
	var out MailEvents
	none := false
	for item := range strings.SplitSeq(text, ",") {
		switch name := strings.ToUpper(item); name {
		case "ALL":
			out |= MailAll
		case "NONE":
			none = true
		default:
			i := slices.Index(mailNames[:], name)
			if i < 0 {
				return 0, Errorf(CodeInvalid, "mail_type %s: want NONE, ALL or some of %s", QuoteShort(item), strings.Join(mailNames[:], ","))
			}
			out |= 1 << i
		}
	}
	if none {
		return 0, nil
	}
	return out, nil
}

// String returns the form that ParseMailEvents parses, "" for none.
func (m MailEvents) String() string {
	var out []string
	for i, name := range mailNames {
		if m&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}

// Check returns what is wrong with m, as an *Error of CodeInvalid. Addresses are
// names or name@host of letters, digits and ._+=-: anything that mail programs
// interpret, or that ends a header line, is refused.
func (m Mail) Check() error {
	if m.Events&^mailKnown != 0 {
		return Errorf(CodeInvalid, "mail_type: has events that are not known here")
	}
	if m.To == "" {
		return nil
	}
	all := strings.Split(m.To, ",")
	if len(m.To) > maxMailUser || len(all) > maxMailUsers {
		return Errorf(CodeInvalid, "mail_user: %d addresses in %d bytes, at most %d in %d are allowed", len(all), len(m.To), maxMailUsers, maxMailUser)
	}
	for _, a := range all {
		if !isAddress(a) {
			return Errorf(CodeInvalid, "mail_user %s: want a user's name or an address such as ann@example.org, of only letters, digits and . _ + = -", QuoteShort(a))
		}
	}
	return nil
}

func isAddress(a string) bool {
	name, host, at := strings.Cut(a, "@")
	plain := func(s string) bool {
		return s != "" && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+=-") == ""
	}
	return plain(name) && (!at || plain(host))
}

// checkTelling checks the mail and idle options against what the job can trigger.
func (s *Spec) checkTelling() error {
	if err := s.Mail.Check(); err != nil {
		return err
	}
	switch {
	case s.IdleOK < 0 || s.IdleOK > MaxIdleOK:
		return Errorf(CodeInvalid, "idle_ok: %s is outside 0 to %d days", TimeText(s.IdleOK), MaxTimeDays)
	case s.IdleOK > 0 && s.GPUs == 0:
		return Errorf(CodeInvalid, "idle_ok and gpus: a job without GPUs leaves none idle; add --gpus or drop --idle-ok")
	}
	return nil
}

// Warning is a signal that a job gets once, some time before its time limit ends
// it. The zero value is none.
type Warning struct {
	// Signal is one of WarningSignals, "" for none. It is a name because numbers
	// differ between systems.
	Signal string
	// Before is how long before the limit it is sent.
	Before time.Duration
	// First sends it to the first process alone, which for a batch script is the
	// shell. Otherwise all others get it, and the first too unless it is that
	// shell, which would exit on it and end the job.
	First bool
}

// Bounds of Warning.Before; the upper one is Slurm's.
const (
	DefaultWarning = time.Minute
	MinWarning     = time.Second
	MaxWarning     = 65535 * time.Second
)

// WarningSignals returns the signals that may warn, without the SIG prefix. KILL
// and STOP would end or halt the job instead of warning it.
func WarningSignals() []string {
	return []string{"USR1", "USR2", "HUP", "INT", "QUIT", "TERM", "ALRM", "URG", "CONT", "XCPU"}
}

// Set reports whether there is a warning.
func (w Warning) Set() bool { return w.Signal != "" }

// String returns the form that ParseWarning parses, "" for none.
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

// ParseWarning parses [B:]SIGNAL[@TIME], such as USR1, B:SIGUSR1@90 or USR1@2m; a
// plain number is in seconds. Errors are *Error of CodeInvalid.
func ParseWarning(text string) (Warning, error) {
	rest, first := strings.CutPrefix(text, "B:")
	signal, before, bad := signalAt(rest, DefaultWarning)
	w := Warning{Signal: signal, Before: before, First: first}
	if w.Signal == "" {
		return Warning{}, Errorf(CodeInvalid, "signal %s: want SIGNAL, SIGNAL@TIME or B:SIGNAL@TIME, such as USR1@60", QuoteShort(text))
	}
	if bad != nil {
		return Warning{}, Errorf(CodeInvalid, "signal %s: %s is not a time before the limit; want seconds or a span, such as USR1@60 or USR1@2m", QuoteShort(text), QuoteShort(*bad))
	}
	if err := w.Check(); err != nil {
		return Warning{}, err
	}
	return w, nil
}

// Check returns what is wrong with w, as an *Error of CodeInvalid.
func (w Warning) Check() error {
	switch {
	case w == Warning{}:
		return nil
	case !slices.Contains(WarningSignals(), w.Signal):
		return Errorf(CodeInvalid, "signal: %s is not one of %s", QuoteShort(w.Signal), strings.Join(WarningSignals(), ", "))
	case w.Before < MinWarning || w.Before > MaxWarning:
		return Errorf(CodeInvalid, "signal: %s before the time limit is outside %s to %d s", TimeText(w.Before), TimeText(MinWarning), MaxWarning/time.Second)
	case w.Before%time.Second != 0:
		return Errorf(CodeInvalid, "signal: %s before the time limit is not a whole number of seconds", w.Before)
	}
	return nil
}

// checkWarning checks the warning against the time limit, if there is one.
func (s *Spec) checkWarning() error {
	if err := s.Warning.Check(); err != nil {
		return err
	}
	if s.Warning.Set() && s.TimeLimit > 0 && s.Warning.Before >= s.TimeLimit {
		return Errorf(CodeInvalid, "signal and time: %s before the end of a job of %s is no later than its start; warn later, or ask for more time", TimeText(s.Warning.Before), TimeText(s.TimeLimit))
	}
	return nil
}
