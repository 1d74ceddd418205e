package launch

import (
	"encoding/json"
	"time"
)

// RanksArg is the first argument of a process that is to be ranks.Main.
const RanksArg = "ranks"

// Ranks says which processes a node runs of one attempt. It travels as one
// argument.
type Ranks struct {
	// Tasks is how many processes this node has, First the rank of its first
	// among those of all nodes.
	Tasks, First int
	// Grace is what the others get between SIGTERM and SIGKILL once one failed.
	Grace time.Duration
	// Stdout and Stderr are files of each process, in which its rank stands
	// for RankMark; empty is what this process has. Paths are bytes.
	Stdout, Stderr []byte `json:",omitempty"`
	// Slurm adds what scripts written for Slurm read.
	Slurm bool `json:",omitempty"`
	// Hold runs none, and keeps what the attempt has.
	Hold *Hold `json:",omitempty"`
}

// Hold says when a holder, which is package hold's, ends by itself.
type Hold struct {
	// First is how long the first keeper may take to come, Again how long the
	// next one after the last has gone. 0 waits for good.
	First, Again time.Duration
}

// RankMark stands for the rank in Ranks.Stdout and Stderr. No path holds it by
// accident: it has a NUL byte.
const RankMark = "\x00rank\x00"

// Args is the argument vector of a process, called name, that runs argv once
// for each rank.
func (r Ranks) Args(name string, argv []string) []string {
	text, err := json.Marshal(r)
	if err != nil {
		panic("ranks: encode configuration: " + err.Error()) // it holds nothing that fails
	}
	return append([]string{name, RanksArg, string(text), "--"}, argv...)
}
