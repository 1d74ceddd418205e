// Package outputpath expands Slurm's patterns in the names of jobs' output files. It
// is pure: no clock, no I/O.
package outputpath

import (
	"github.com/berth-scheduler/berth/cluster"
	"strconv"
	"strings"
)

// NoTask stands for the task number where there is none, as in Slurm.
const NoTask = 4294967294

// maxPad is the maximum padded width of a number.
const maxPad = 10

// Names holds the values of the patterns in the names of a job's files.
type Names struct {
	Job, Array cluster.JobID // Array is 0 for a job that is not a task
	Task       *uint32       // number in the array, nil for none
	Step       *int          // nil outside of steps
	Name, User string
	Node       string
	NodeRank   int
	// Rank is the process's rank, as text so that a placeholder can stand for it.
	Rank string
}

// Expand replaces Slurm's patterns in the name of a file: %j the job, %A its array
// or the job, %a the number of the task, %J job and step, %s the step, %x the job's
// name, %u the user, %N the node, %n its rank, %t the rank of the process, %% a
// percent sign. A number before the letter pads with zeros, up to ten digits.
// Anything else is kept, and a backslash anywhere disables all patterns and is
// removed.
func Expand(pattern string, n *Names) string {
	if strings.Contains(pattern, `\`) {
		return strings.ReplaceAll(pattern, `\`, "")
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(pattern, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		letter := strings.TrimLeft(rest, "0123456789")
		if letter == "" {
			b.WriteString("%" + rest)
			return b.String()
		}
		val, number, ok := n.field(letter[0])
		if !ok {
			b.WriteByte('%')
			pattern = rest
			continue
		}
		if number {
			width, _ := strconv.Atoi(rest[:len(rest)-len(letter)]) // no digits give 0, too many the largest int
			b.WriteString(strings.Repeat("0", max(0, min(width, maxPad)-len(val))))
		}
		b.WriteString(val)
		pattern = letter[1:]
	}
}

// field returns the value of a letter, and whether it is a number to be padded.
func (n *Names) field(letter byte) (val string, number, ok bool) {
	switch letter {
	case '%':
		return "%", false, true
	case 'j':
		return n.Job.String(), true, true
	case 'J':
		if n.Step != nil {
			return n.Job.String() + "." + strconv.Itoa(*n.Step), false, true
		}
		return n.Job.String(), true, true
	case 'A':
		if n.Array != 0 {
			return n.Array.String(), true, true
		}
		return n.Job.String(), true, true
	case 'a':
		if n.Task == nil {
			return strconv.Itoa(NoTask), true, true
		}
		return strconv.FormatUint(uint64(*n.Task), 10), true, true
	case 's':
		if n.Step == nil {
			return "0", true, true
		}
		return strconv.Itoa(*n.Step), true, true
	case 'n':
		return strconv.Itoa(n.NodeRank), true, true
	case 't':
		if n.Rank == "" {
			return "0", true, true
		}
		return n.Rank, true, true
	case 'x':
		return n.Name, false, true
	case 'u':
		return n.User, false, true
	case 'N':
		return n.Node, false, true
	}
	return "", false, false
}
