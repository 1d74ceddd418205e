package launch

import (
	"encoding/json"
	"time"
)

// RanksArg is the first argument of a process that runs ranks.Main.
const RanksArg = "ranks"

// Ranks says which processes of one attempt a node runs. It is passed as one argument.
type Ranks struct {
	// Tasks is the number of processes on this node, First the rank of its first among
	// those of all nodes.
	Tasks, First int
	// Grace is the time between SIGTERM and SIGKILL for the others once one has failed.
	Grace time.Duration
	// Stdout and Stderr are the files of each process, in which its rank replaces RankMark;
	// empty means those of this process. Paths are bytes.
	Stdout, Stderr []byte `json:",omitempty"`
	// Slurm adds the variables that scripts written for Slurm read.
	Slurm bool `json:",omitempty"`
	// Hold runs no process, and holds the attempt's resources.
	Hold *Hold `json:",omitempty"`
}

// Hold says when a holder, see package hold, ends by itself.
type Hold struct {
	// First is how long the first keeper may take to come, Again how long the next may take
	// after the last has gone. 0 waits indefinitely.
	First, Again time.Duration
}

// RankMark stands for the rank in Ranks.Stdout and Stderr. No path can contain it: it has a
// NUL byte.
const RankMark = "\x00rank\x00"

// Args returns the argument vector of a process, called name, that runs argv once for each
// rank.
func (r Ranks) Args(name string, argv []string) []string {
	text, err := json.Marshal(r)
	if err != nil {
		panic("ranks: encode configuration: " + err.Error()) // it holds nothing that cannot be encoded
	}
	return append([]string{name, RanksArg, string(text), "--"}, argv...)
}
