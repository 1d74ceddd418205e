package sbatch

import (
	"bytes"
	"errors"
)

// Finding is one thing to say of a script. Line is 0 when it is of the whole
// script.
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
	// Request is nil for a script that cannot be read.
	Request *Request
}

// Worst is the worst fate in the report.
func (r *Report) Worst() Fate {
	worst := Honoured
	for _, f := range r.Findings {
		worst = max(worst, f.Fate)
	}
	return worst
}

// IsBatch tells whether data looks like a batch script: it begins with #! and
// has a directive somewhere.
func IsBatch(data []byte) bool {
	if !bytes.HasPrefix(data, []byte("#!")) {
		return false
	}
	return bytes.Contains(data, []byte("\n"+slurmMark)) || bytes.Contains(data, []byte("\n"+berthMark))
}

// Lint says what becomes of each directive of a script, and what else is of
// note. own are Berth's flags.
func Lint(data []byte, own []Option) *Report {
	script, err := Read(data)
	if err != nil {
		return &Report{Findings: []Finding{{Option: "script", Fate: Refused, Note: firstLine(err), Fix: wholeFix(err)}}}
	}
	set, faults, _ := Scan(script.Slurm, FromSlurmLine, own, false)
	ours, more, _ := Scan(script.Berth, FromBerthLine, own, true)
	req, outcomes := Resolve(append(set, ours...), append(faults, more...))
	r := &Report{Request: req}
	for _, o := range outcomes {
		r.Findings = append(r.Findings, Finding{o.From.Line, o.Option, o.Fate, o.Note, o.Fix})
	}
	for _, line := range script.Late {
		r.Findings = append(r.Findings, Finding{line, "directive", Ignored, "it comes after the first command: sbatch ignores it too", "move it up, or delete it"})
	}
	for _, c := range script.Commands {
		r.Findings = append(r.Findings, Finding{c.Line, c.Name, Ignored, "nodes have Slurm's commands only where they were installed", commandFix(c.Name)})
	}
	return r
}

func commandFix(name string) string {
	if name == "srun" {
		return "run the program itself; for a process each GPU, torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE"
	}
	return "make do without it: the job has one node, $SLURM_JOB_NODELIST"
}

func firstLine(err error) string {
	line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return string(line)
}

func wholeFix(err error) string {
	switch {
	case errors.Is(err, ErrEmpty), errors.Is(err, ErrNoInterpreter):
		return "begin it with #!/bin/bash"
	case errors.Is(err, ErrDOS):
		return `write it out with UNIX line breaks: sed -i 's/\r$//' FILE`
	default:
		return ""
	}
}
