package notify

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Subject returns a notice in one line, in the words of Slurm's mail prefixed with
// Berth's name, so that users' existing filters keep working. It holds no control
// character.
func Subject(n *logv1.Notice) string {
	head := fmt.Sprintf("Berth Job_id=%d Name=%s ", n.Job, n.Name)
	switch {
	case n.WholeArray:
		head = fmt.Sprintf("Berth Array Summary Job_id=%d_* (%d) Name=%s ", n.ArrayJob, n.ArrayJob, n.Name)
	case n.ArrayJob != 0:
		head = fmt.Sprintf("Berth Array Task Job_id=%d_%d (%d) Name=%s ", n.ArrayJob, n.ArrayTask, n.Job, n.Name)
	}
	return plain(head + happened(n))
}

// happened says what happened to the job.
func happened(n *logv1.Notice) string {
	ran := "Run time " + clock(n.RanUs)
	switch cluster.MailEvents(n.Event) {
	case cluster.MailBegin:
		if n.WholeArray {
			return "Began"
		}
		return "Began, Queued time " + clock(n.QueuedUs)
	case cluster.MailEnd, cluster.MailFail:
		word := "Ended"
		if cluster.MailEvents(n.Event) == cluster.MailFail {
			word = "Failed"
		}
		if n.WholeArray {
			return word + ", " + n.Text
		}
		return word + ", " + ran + ", " + cluster.JobState(n.State).String() + exit(n)
	case cluster.MailRequeue:
		return "Requeued, " + ran
	case cluster.MailInvalidDepend:
		return "Invalid dependency"
	case cluster.MailTimeLimit:
		return "Reached time limit, " + ran
	case cluster.MailTimeLimit50:
		return "Reached 50% of time limit, " + ran
	case cluster.MailTimeLimit80:
		return "Reached 80% of time limit, " + ran
	case cluster.MailTimeLimit90:
		return "Reached 90% of time limit, " + ran
	case cluster.MailIdle:
		return "GPU idle, " + ran
	}
	return strings.ToLower(cluster.MailEvents(n.Event).String()) + ", " + ran
}

func exit(n *logv1.Notice) string {
	switch {
	case n.Signal != 0:
		return fmt.Sprintf(", Signal %d", n.Signal)
	case n.ExitCode != nil:
		return fmt.Sprintf(", ExitCode %d", n.GetExitCode())
	}
	return ""
}

// clock formats a duration as Slurm does, [D-]HH:MM:SS.
func clock(us int64) string {
	s := max(0, us/1_000_000)
	out := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if d := s / 86400; d > 0 {
		out = fmt.Sprintf("%d-%s", d, out)
	}
	return out
}

// plain replaces unprintable characters: what others chose must not end a header's
// line or move a terminal's cursor.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) && r != ' ' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Body returns everything about a notice, in lines of plain text.
func Body(n *logv1.Notice, clusterName string) string {
	var b strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", key, plain(value))
		}
	}
	b.WriteString(Subject(n) + "\n\n")
	if n.Text != "" && !n.WholeArray {
		b.WriteString(plain(n.Text) + "\n\n")
	}
	line("Cluster", clusterName)
	line("Job", fmt.Sprintf("%d (%s)", n.Job, n.Name))
	line("User", n.User)
	line("Partition", n.Partition)
	line("State", cluster.JobState(n.State).String())
	if n.Reason != "" && n.Reason != string(cluster.ReasonNone) {
		line("Reason", strings.TrimSuffix(n.Reason+": "+n.Detail, ": "))
	}
	line("Exit", strings.TrimPrefix(exit(n), ", "))
	line("Nodes", n.Nodes)
	if n.Attempt > 1 {
		line("Attempt", fmt.Sprint(n.Attempt))
	}
	if n.QueuedUs > 0 {
		line("Waited", clock(n.QueuedUs))
	}
	if n.RanUs > 0 {
		line("Ran", clock(n.RanUs))
	}
	line("At", time.UnixMicro(n.AtUs).UTC().Format("2006-01-02 15:04:05 MST"))
	line("Comment", n.Comment)
	fmt.Fprintf(&b, "\nMore: berth show %d, berth why %d\n", n.Job, n.Job)
	return b.String()
}
