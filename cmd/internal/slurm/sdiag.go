package slurm

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// Passes describes scheduling passes: how many there were, how long they took
// in microseconds, over how many waiting jobs, and how many jobs they
// started.
type Passes struct {
	Count, LastUs, MaxUs, TotalUs, LastDepth, TotalDepth, Started uint64
}

// RPC is how often a request was made, and how many microseconds all answers took.
type RPC struct {
	Name           string
	Count, TotalUs uint64
}

// Sdiag is what sdiag shows.
type Sdiag struct {
	Now, Since       time.Time
	InFlight         uint32
	Pending, Running uint64
	// Main are the passes that start jobs as they arrive, Backfill those over all
	// that wait.
	Main, Backfill Passes
	// RPCs are in the order in which they are printed.
	RPCs []RPC
}

// Print writes it as sdiag of Slurm 22.05 does. Lines without a figure are
// left out; nothing waits for agents or for a database, since there are none.
func (s *Sdiag) Print(w io.Writer) error {
	const rule = "*******************************************************\n"
	when := func(t time.Time) string {
		return fmt.Sprintf("%s (%d)", t.Format("Mon Jan 02 15:04:05 2006"), t.Unix())
	}
	var b strings.Builder
	b.WriteString(rule)
	fmt.Fprintf(&b, "sdiag output at %s\nData since      %s\n", when(s.Now), when(s.Since))
	b.WriteString(rule)
	fmt.Fprintf(&b, "Server thread count:  %d\nAgent queue size:     0\nAgent count:          0\nAgent thread count:   0\nDBD Agent queue size: 0\n\n", s.InFlight)
	fmt.Fprintf(&b, "Jobs started:   %d\n\n", s.Main.Started+s.Backfill.Started)
	fmt.Fprintf(&b, "Job states ts:  %s\nJobs pending:   %d\nJobs running:   %d\n\n", when(s.Now), s.Pending, s.Running)
	b.WriteString("Main schedule statistics (microseconds):\n")
	s.passes(&b, &s.Main, "Mean depth cycle")
	b.WriteString("\nBackfilling stats\n")
	fmt.Fprintf(&b, "\tTotal backfilled jobs (since last slurm start): %d\n", s.Backfill.Started)
	fmt.Fprintf(&b, "\tTotal backfilled jobs (since last stats cycle start): %d\n", s.Backfill.Started)
	b.WriteString("\tTotal backfilled heterogeneous job components: 0\n")
	s.passes(&b, &s.Backfill, "Depth Mean")
	if len(s.RPCs) > 0 {
		b.WriteString("\nRemote Procedure Call statistics by message type\n")
	}
	for _, r := range s.RPCs {
		fmt.Fprintf(&b, "\t%-40s(%5d) count:%-6d ave_time:%-6d total_time:%d\n", constant(r.Name), 0, r.Count, r.TotalUs/max(1, r.Count), r.TotalUs)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *Sdiag) passes(b *strings.Builder, p *Passes, depth string) {
	n := max(1, p.Count)
	fmt.Fprintf(b, "\tLast cycle:   %d\n\tMax cycle:    %d\n\tTotal cycles: %d\n\tMean cycle:   %d\n\t%s:  %d\n", p.LastUs, p.MaxUs, p.Count, p.TotalUs/n, depth, p.TotalDepth/n)
	if m := uint64(max(0, s.Now.Sub(s.Since)) / time.Minute); m > 0 {
		fmt.Fprintf(b, "\tCycles per minute: %d\n", p.Count/m)
	}
	fmt.Fprintf(b, "\tLast queue length: %d\n", p.LastDepth)
}

// constant returns a name in the form of Slurm's message names: SUBMIT_JOBS
// for SubmitJobs.
func constant(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(runes[i-1]) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
