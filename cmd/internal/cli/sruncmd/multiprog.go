package sruncmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// maxMulti is the largest size of a file of --multi-prog.
const maxMulti = 1 << 20

// tooOld is the command of a step that has one for each task: a node that
// does not know of those is asked to run it.
const tooOld = "--multi-prog (this node's Berth is too old for it)"

// programs reads the file of --multi-prog, if there is one, for so many tasks.
func (o *options) programs(tasks int) (err error) {
	if !o.has("multi-prog") {
		return nil
	}
	if o.has("pty") {
		return errors.New("--multi-prog and --pty cannot be combined: a terminal runs one program")
	}
	o.each, err = multiProg(o.command[0], o.command[1:], tasks)
	o.command = []string{tooOld}
	return err
}

// multiProg reads the file of --multi-prog and returns the command of each
// task. A line has the numbers of tasks, the command and its words, in which
// %t is the task and %o its position among those of the line; a backslash at
// its end continues it.
func multiProg(path string, more []string, tasks int) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, slurmWords("Could not open multi_prog config file %s\n%v", console.Escape(path), unwrap(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMulti+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxMulti {
		return nil, fmt.Errorf("%s has more than %d bytes; start the tasks with a script that selects by $SLURM_PROCID", path, maxMulti)
	}
	out := make([][]string, tasks)
	var rest []string // the words for tasks without a line of their own
	for no, line := range strings.Split(strings.ReplaceAll(string(data), "\\\n", ""), "\n") {
		words := multiWords(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		bad := func(why string) error {
			return slurmWords("%s\nLine %d of configuration file %s invalid", why, no+1, console.Escape(path))
		}
		if len(words) == 1 {
			return nil, bad("the program after the tasks is missing")
		}
		words = slices.Concat(words, more)
		if words[0] == "*" {
			rest = words[1:]
			continue
		}
		ranks, err := multiRanks(words[0], tasks)
		if err != nil {
			return nil, bad(err.Error())
		}
		for place, rank := range ranks {
			if rank >= tasks {
				continue
			}
			if out[rank] != nil {
				return nil, bad(fmt.Sprintf("Duplicate record for task %d", rank))
			}
			out[rank] = multiFill(words[1:], rank, place)
		}
	}
	for rank := range out {
		switch {
		case out[rank] != nil:
		case rest == nil:
			return nil, slurmWords("Configuration file %s invalid, no record for task id %d", console.Escape(path), rank)
		default:
			out[rank] = multiFill(rest, rank, rank)
		}
	}
	return out, nil
}

// multiFill replaces the patterns for a task's numbers in words.
func multiFill(words []string, rank, place int) []string {
	fill := strings.NewReplacer("%t", strconv.Itoa(rank), "%o", strconv.Itoa(place))
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = fill.Replace(w)
	}
	return out
}

// multiRanks reads task numbers such as 0,4-7; those that the step does not
// have are skipped.
func multiRanks(list string, tasks int) (ranks []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		from, to, span := strings.Cut(item, "-")
		if !span {
			to = from
		}
		a, aerr := strconv.ParseUint(from, 10, 31)
		b, berr := strconv.ParseUint(to, 10, 31)
		if aerr != nil || berr != nil || a > b {
			return nil, fmt.Errorf("%q is not a list of tasks: want 0, 1-3, 0,4-7 or *", list)
		}
		for n := int(a); n <= min(int(b), tasks); n++ {
			ranks = append(ranks, n)
		}
	}
	return ranks, nil
}

// multiWords splits a line at blanks; single quotes and a backslash protect them.
func multiWords(line string) (words []string) {
	var word []byte
	begun, quoted := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			quoted, begun = !quoted, true
		case !quoted && c == '\\' && i+1 < len(line):
			i++
			word, begun = append(word, line[i]), true
		case !quoted && (c == ' ' || c == '\t' || c == '\r'):
			if begun {
				words = append(words, string(word))
			}
			word, begun = nil, false
		default:
			word, begun = append(word, c), true
		}
	}
	if begun {
		words = append(words, string(word))
	}
	return words
}
