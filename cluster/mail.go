package cluster

import (
	"slices"
	"strings"
	"time"
)

// MailEvents is a set of what a job's owner wants to be written about.
type MailEvents uint16

// The events, by their names in capitals and in Slurm's order. MailEnd is the
// end of any kind, MailFail an end other than COMPLETED. The marks of the time
// limit tell that so much of it is used; MailIdle, which is not Slurm's, that its
// GPUs stand idle and what becomes of it. Without MailArrayTasks an array is
// written about as a whole. Nothing is staged out, so that MailStageOut only
// stands where it was asked for.
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
	// MailMarks are those that a clock alone brings.
	MailMarks = MailTimeLimit50 | MailTimeLimit80 | MailTimeLimit90
	// MailAll is what ALL stands for, as in Slurm.
	MailAll = MailInvalidDepend | MailBegin | MailEnd | MailFail | MailRequeue | MailStageOut
)

var mailNames = [...]string{"ARRAY_TASKS", "INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT", "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90", "TIME_LIMIT", "IDLE"}

// Bounds of whom mail goes to.
const (
	maxMailUser  = 256
	maxMailUsers = 5
)

// MaxIdleOK bounds how long a job may say that its GPUs stand idle.
const MaxIdleOK = MaxTimeDays * 24 * time.Hour

// Mail is whom to write to of a job, and about what. The zero value is nobody.
type Mail struct {
	Events MailEvents
	// To is an address, or several with commas between them; "" is the owner.
	To string
}

// ParseMailEvents reads names with commas between them, in any case; ALL is
// MailAll, and NONE anywhere is nothing at all. An unknown name is an *Error of
// CodeInvalid.
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

// String is the form that ParseMailEvents reads, "" for none.
func (m MailEvents) String() string {
	var out []string
	for i, name := range mailNames {
		if m&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}

// Check tells what is wrong with m, as an *Error of CodeInvalid. Addresses are
// names or name@host of letters, digits and ._+=-: whatever mail programs give a
// meaning, and what ends a header's line, stays out.
func (m Mail) Check() error {
	if m.Events&^mailKnown != 0 {
		return Errorf(CodeInvalid, "mail_type: holds events that are not known here")
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
			return Errorf(CodeInvalid, "mail_user %s: want a user's name or an address such as ann@example.org, of letters, digits and . _ + = - alone", QuoteShort(a))
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

// checkTelling holds what is asked of mail and of idle GPUs against what there
// is to tell.
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
