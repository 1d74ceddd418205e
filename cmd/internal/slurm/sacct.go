package slurm

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// acctFormat is sacct's own list of fields.
const acctFormat = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"

// Sacct is what sacct was asked for.
type Sacct struct {
	// Format names fields, each with %WIDTH or %-WIDTH to the left; "" is Slurm's.
	Format string
	// NoHead is -n; Parsable ends each field with Delimiter and Parsable2 parts
	// them by it, none cut. "" is a vertical bar.
	NoHead, Parsable, Parsable2 bool
	Delimiter                   string
}

// acctField is a field of sacct: how wide it is, to the left if negative.
type acctField struct {
	name  string
	width int
	value func(*Job) string
}

// acctFields are in the order of --helpformat.
var acctFields = []acctField{
	{"Account", 10, func(j *Job) string { return j.Account }},
	{"AllocCPUS", 10, func(j *Job) string { return number(j.CPUs) }},
	{"AllocNodes", 10, func(j *Job) string { return number(j.Nodes) }},
	{"AllocTRES", 10, func(j *Job) string { return j.tres() }},
	{"Comment", 14, func(j *Job) string { return j.Comment }},
	{"CPUTime", 10, func(j *Job) string { return long(j.Ran * time.Duration(j.CPUs)) }},
	{"CPUTimeRAW", 10, func(j *Job) string { return number(int64(j.Ran/time.Second) * j.CPUs) }},
	{"Elapsed", 10, func(j *Job) string { return long(j.Ran) }},
	{"ElapsedRaw", 10, func(j *Job) string { return number(int64(j.Ran / time.Second)) }},
	{"Eligible", 19, func(j *Job) string { return stamp(j.Eligible, "Unknown") }},
	{"End", 19, func(j *Job) string { return stamp(j.Ended, "Unknown") }},
	{"ExitCode", 8, func(j *Job) string { return fmt.Sprintf("%d:%d", j.ExitCode, j.Signal) }},
	{"Group", 9, func(j *Job) string { return j.Group }},
	{"GID", 6, func(j *Job) string { return number(j.GID) }},
	{"JobID", -12, (*Job).shown},
	{"JobIDRaw", -12, (*Job).id},
	{"JobName", 10, func(j *Job) string { return j.Name }},
	{"MaxRSS", 10, func(j *Job) string {
		if j.MaxRSSMiB == 0 {
			return ""
		}
		return strconv.FormatInt(j.MaxRSSMiB<<10, 10) + "K"
	}},
	{"NCPUS", 10, func(j *Job) string { return number(j.CPUs) }},
	{"NNodes", 8, func(j *Job) string { return number(j.Nodes) }},
	{"NodeList", 15, func(j *Job) string { return cmp.Or(j.NodeList, "None assigned") }},
	{"NTasks", 8, func(j *Job) string { return number(max(1, j.Tasked)) }},
	{"Partition", 10, func(j *Job) string { return j.Partition }},
	{"Priority", 10, func(j *Job) string { return number(j.Priority) }},
	{"QOS", 10, func(j *Job) string { return j.QOS }},
	{"Reason", 22, func(j *Job) string { return j.Reason }},
	{"ReqCPUS", 8, func(j *Job) string { return number(j.CPUs) }},
	{"ReqMem", 10, func(j *Job) string { return memory(j.MinMemMiB) }},
	{"ReqNodes", 8, func(j *Job) string { return number(j.Nodes) }},
	{"ReqTRES", 10, func(j *Job) string { return j.tres() }},
	{"Start", 19, func(j *Job) string { return stamp(j.Started, "Unknown") }},
	{"State", 10, func(j *Job) string { return j.State }},
	{"Submit", 19, func(j *Job) string { return stamp(j.Submitted, "Unknown") }},
	{"Timelimit", 10, func(j *Job) string {
		if j.Limit == 0 {
			return "UNLIMITED"
		}
		return long(j.Limit)
	}},
	{"TimelimitRaw", 12, func(j *Job) string {
		if j.Limit == 0 {
			return "UNLIMITED"
		}
		return number(int64(j.Limit / time.Minute))
	}},
	{"UID", 6, func(j *Job) string { return number(j.UID) }},
	{"User", 9, func(j *Job) string { return j.User }},
	{"WorkDir", 20, func(j *Job) string { return j.Dir }},
}

// AcctFields are the names of the fields that sacct knows, in order.
func AcctFields() []string {
	names := make([]string, len(acctFields))
	for i, f := range acctFields {
		names[i] = f.name
	}
	return names
}

// Print writes the jobs as sacct does. The error names a field that is not
// known; then nothing was written.
func (a *Sacct) Print(w io.Writer, jobs []Job) error {
	fields, err := a.fields()
	if err != nil {
		return err
	}
	var b strings.Builder
	if !a.NoHead {
		a.line(&b, fields, func(f *acctField) string { return f.name })
		if !a.Parsable && !a.Parsable2 {
			a.line(&b, fields, func(f *acctField) string { return strings.Repeat("-", max(f.width, -f.width)) })
		}
	}
	for i := range jobs {
		a.line(&b, fields, func(f *acctField) string { return f.value(&jobs[i]) })
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func (a *Sacct) fields() ([]acctField, error) {
	var out []acctField
	for _, s := range strings.Split(cmp.Or(a.Format, acctFormat), ",") {
		name, width, sized := strings.Cut(strings.TrimSpace(s), "%")
		found := false
		for _, f := range acctFields {
			if !strings.EqualFold(f.name, name) {
				continue
			}
			if n, err := strconv.Atoi(width); sized && err == nil && n != 0 && -maxWidth <= n && n <= maxWidth {
				f.width = n
			}
			out, found = append(out, f), true
		}
		if !found {
			return nil, Message(fmt.Sprintf("Invalid field requested: \"%s\"", name))
		}
	}
	return out, nil
}

func (a *Sacct) line(b *strings.Builder, fields []acctField, text func(*acctField) string) {
	by := cmp.Or(a.Delimiter, "|")
	for i := range fields {
		f := &fields[i]
		s := text(f)
		switch {
		case a.Parsable2:
			if i > 0 {
				b.WriteString(by)
			}
			b.WriteString(s)
		case a.Parsable:
			b.WriteString(s + by)
		default:
			width := max(f.width, -f.width)
			if runes := []rune(s); len(runes) > width { // Slurm marks what it cut
				s = string(runes[:width-1]) + "+"
			}
			b.WriteString(pad(s, width, f.width > 0) + " ")
		}
	}
	b.WriteByte('\n')
}
