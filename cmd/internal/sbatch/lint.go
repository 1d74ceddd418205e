package sbatch

import (
	"bytes"
	"errors"
)

// Finding is one remark on a script. Line is 0 if it concerns the whole script.
type Finding struct {
	Line   int
	Option string
	Fate   Fate
	Note   string
	Fix    string
}

// Report is what lint says of one script.
type Report struct {
	Findings []Finding
	// Request is nil for a script that cannot be parsed.
	Request *Request
}

// Worst returns the worst fate in the report.
func (r *Report) Worst() Fate {
	worst := Honoured
	for _, f := range r.Findings {
		worst = max(worst, f.Fate)
	}
	return worst
}

// IsBatch reports whether data looks like a batch script, even one without
// its first line: one of its lines begins with a directive.
func IsBatch(data []byte) bool {
	return bytes.HasPrefix(data, []byte(slurmMark)) || bytes.HasPrefix(data, []byte(berthMark)) || bytes.Contains(data, []byte("\n"+slurmMark)) || bytes.Contains(data, []byte("\n"+berthMark))
}

// Lint says what becomes of each directive of a script, and what else is
// notable. own are Berth's flags.
func Lint(data []byte, own []Option) *Report {
	script, err := Read(data)
	if err != nil {
		note, fix := whole(err, data)
		return &Report{Findings: []Finding{{Option: "script", Fate: Refused, Note: note, Fix: fix}}}
	}
	set, faults, _ := Scan(script.Slurm, FromSlurmLine, own, false)
	ours, more, _ := Scan(script.Berth, FromBerthLine, own, true)
	req, outcomes := Resolve(append(set, ours...), append(faults, more...))
	r := &Report{Request: req}
	for _, o := range append(outcomes, script.Outcomes(set)...) {
		r.Findings = append(r.Findings, Finding{o.From.Line, o.Option, o.Fate, o.Note, o.Fix})
	}
	for _, line := range script.Late {
		r.Findings = append(r.Findings, Finding{line, "directive", Ignored, "it comes after the first command: sbatch ignores it too", "move it up, or delete it"})
	}
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') >= 0 {
		r.Findings = append(r.Findings, Finding{1, "script", Ignored, "it is a single line: it has old Macintosh line breaks", `tr '\r' '\n' <FILE >NEW`})
	}
	for _, c := range script.Commands {
		r.Findings = append(r.Findings, Finding{c.Line, c.Name, Ignored, "jobs have srun, scontrol, squeue and others, but not this command", "do without it, or make sure that its failure does no harm"})
	}
	return r
}

// whole says why a script cannot be parsed at all, and how to fix it.
func whole(err error, data []byte) (note, fix string) {
	switch {
	case errors.Is(err, ErrNoInterpreter):
		note = "this does not look like a batch script: the first line must start with #! and an interpreter"
		switch {
		case bytes.HasPrefix(data, []byte("\ufeff")):
			return note, `it begins with a byte order mark: sed -i '1s/^\xef\xbb\xbf//' FILE`
		case bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("#!")):
			return note, "delete everything before #!, including blank lines"
		}
		return note, "start it with #!/bin/bash"
	case errors.Is(err, ErrEmpty):
		return firstLine(err), "start it with #!/bin/bash"
	case errors.Is(err, ErrDOS):
		return firstLine(err), `write it out with UNIX line breaks: sed -i 's/\r$//' FILE`
	}
	return firstLine(err), ""
}

func firstLine(err error) string {
	line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return string(line)
}
