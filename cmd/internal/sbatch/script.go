package sbatch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Prefixes of directives, at the very beginning of a line.
const (
	slurmMark = "#SBATCH"
	berthMark = "#BERTH"
)

// Word is one word of a directive and its line, from 1. Line 0 is a command line.
type Word struct {
	Text string
	Line int
}

// Script is the content of a batch script's directives, before interpretation.
type Script struct {
	// Slurm and Berth are the words of #SBATCH and #BERTH lines, in order.
	Slurm, Berth []Word
	// Late are lines that look like directives but follow the first command,
	// where sbatch no longer looks.
	Late []int
	// Commands are lines that run a command of Slurm's: see CommandUse.
	Commands []CommandUse
	// Parts is the line that begins the second part of a heterogeneous job, 0
	// if there is none; directives from there on are not in Slurm.
	Parts int
	// Foreign are lines with directives of other schedulers.
	Foreign []CommandUse
}

// CommandUse is a command of Slurm's in the body of a script.
type CommandUse struct {
	Line int
	Name string
}

// Message is an error in sbatch's own words, capitals and full stops included.
type Message string

// Error implements error.
func (m Message) Error() string { return string(m) }

// Errors of scripts that sbatch refuses as a whole, in its words.
var (
	ErrEmpty         = Message("Batch script is empty!")
	ErrNoInterpreter = Message("This does not look like a batch script.  The first\n" +
		"line must start with #! followed by the path to an interpreter.\nFor instance: #!/bin/sh")
	ErrDOS = Message("Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).")
)

// Read finds the directives of a script. Like sbatch it looks only at lines
// before the first command, requires a first line with #!, and refuses
// Windows line ends.
func Read(data []byte) (*Script, error) {
	switch {
	case len(data) == 0:
		return nil, ErrEmpty
	case !bytes.HasPrefix(data, []byte("#!")):
		return nil, ErrNoInterpreter
	case bytes.Contains(data, []byte("\r\n")):
		return nil, ErrDOS
	}
	s := &Script{}
	body := false
	for n, line := range strings.Split(string(data), "\n") {
		mark := markOf(line)
		switch {
		case body && mark != "":
			s.Late = append(s.Late, n+1)
		case mark == slurmMark && beginsPart(line):
			s.Parts = cmp.Or(s.Parts, n+1)
		case mark == slurmMark && s.Parts > 0: // of another part
		case mark != "":
			words, err := splitDirective(line[len(mark):], n+1)
			if err != nil {
				return nil, err
			}
			if mark == slurmMark {
				s.Slurm = append(s.Slurm, words...)
			} else {
				s.Berth = append(s.Berth, words...)
			}
		case isCommand(line):
			body = true
		case !body:
			if f := foreignMark(line); f != "" {
				s.Foreign = append(s.Foreign, CommandUse{n + 1, f})
			}
		}
		if body {
			if c := slurmCommand(line); c != "" {
				s.Commands = append(s.Commands, CommandUse{n + 1, c})
			}
		}
	}
	return s, nil
}

// beginsPart reports whether a directive splits a heterogeneous job.
func beginsPart(line string) bool {
	f := strings.Fields(line)
	return len(f) > 1 && f[0] == slurmMark && (f[1] == "hetjob" || f[1] == "packjob")
}

// foreignMark names the mark of another scheduler's directive.
func foreignMark(line string) string {
	for _, m := range []string{"#PBS", "#BSUB"} {
		if rest, ok := strings.CutPrefix(line, m); ok && rest != "" && isSpace(rest[0]) {
			return m
		}
	}
	return ""
}

// Outcomes says what becomes of the lines that are not options: parts of a
// heterogeneous job, and other schedulers' directives. set are the script's
// own settings.
func (s *Script) Outcomes(set []Setting) []Outcome {
	var out []Outcome
	if s.Parts > 0 {
		out = append(out, Outcome{From: Origin{Line: s.Parts}, Option: "hetjob", Fate: Refused,
			Note: "a job has one kind of node and task, not several",
			Fix:  "submit each part as a job of its own, the second with --dependency=after:ID of the first"})
	}
	if slices.ContainsFunc(set, func(x Setting) bool { return x.Name == "ignore-pbs" }) {
		return out
	}
	for _, f := range s.Foreign {
		out = append(out, Outcome{From: Origin{Line: f.Line}, Option: f.Name, Fate: Ignored,
			Note: "a comment here, but sbatch reads part of it", Fix: "put it on a #SBATCH line, or delete it"})
	}
	return out
}

func markOf(line string) string {
	for _, m := range []string{slurmMark, berthMark} {
		if strings.HasPrefix(line, m) {
			return m
		}
	}
	return ""
}

// isCommand reports whether sbatch stops looking for directives at this line:
// at anything that is neither blank nor a comment.
func isCommand(line string) bool {
	rest := strings.TrimLeft(line, " \t\v\f\r")
	return rest != "" && rest[0] != '#'
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// splitDirective splits the rest of a directive into words. Quotes of both
// kinds protect spaces and are removed, a backslash protects the next
// character, and an unquoted # begins a comment, even inside a word. An empty
// word ends the line, and a space after a backslash still ends the word, as
// in sbatch.
func splitDirective(s string, line int) ([]Word, error) {
	var out []Word
	s = strings.TrimLeft(s, " \t\v\f\r")
	for i := 0; ; {
		from := i
		for i < len(s) && isSpace(s[i]) {
			i++
		}
		if i < len(s) && s[i] == ':' {
			return nil, fmt.Errorf("line %d: Unexpected `:` in [%s]", line, s[from:])
		}
		word, n, open := firstWord(s[i:])
		if open != 0 {
			return nil, fmt.Errorf("line %d: Unmatched `%c` in [%s]", line, open, s[from:])
		}
		if word == "" {
			return out, nil
		}
		out = append(out, Word{word, line})
		i += n
	}
}

// firstWord returns the first word of s, its length in s, and the quote that
// is still open at the end, or 0.
func firstWord(s string) (word string, n int, quote byte) {
	var b strings.Builder
	escaped := false
	for ; n < len(s) && (quote != 0 || !isSpace(s[n])); n++ {
		switch c := s[n]; {
		case escaped:
			escaped = false
			b.WriteByte(c)
		case c == '\\':
			escaped = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '#':
			return b.String(), n, 0
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), n, quote
}

// slurmCommands are Slurm programs that a script may call and that jobs do
// not find, unlike srun, scontrol and others.
var slurmCommands = []string{"sbcast", "sattach", "sstat", "strigger", "sacctmgr"}

// slurmCommand names the Slurm program that a line runs first, or after exec
// or time. It is a hint for lint and does not parse the shell.
func slurmCommand(line string) string {
	words := strings.Fields(line)
	for len(words) > 1 && (words[0] == "exec" || words[0] == "time" || strings.Contains(words[0], "=") && !strings.HasPrefix(words[0], "-")) {
		words = words[1:]
	}
	for _, c := range slurmCommands {
		if len(words) > 0 && words[0] == c || strings.Contains(line, "$("+c+" ") || strings.Contains(line, "`"+c+" ") {
			return c
		}
	}
	return ""
}
