package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// lendOptions say to whom a partition lends its idle GPUs.
type lendOptions struct{ to, short string }

func (o *lendOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.to, "lend-to", "", "lend idle GPUs to jobs of these partitions that have --checkpoint or end soon, and reclaim them when one of its own jobs waits: a comma-separated `LIST` in the order to serve them; \"\" for none")
	fs.StringVar(&o.short, "lend-short", "", "longest expected run time or time limit of a borrowing job without --checkpoint, a `TIME`; none allows no such job (default 1m)")
}

// request adds the changes of the flags.
func (o *lendOptions) request(req *apiv1.SetPartitionRequest, said func(string) bool) error {
	if said("lend-to") {
		req.SetLendTo, req.LendTo = true, console.Items(o.to)
		for _, name := range req.LendTo {
			if err := cluster.CheckPartitionName(name); err != nil {
				return console.Usagef("--lend-to: %w", err)
			}
		}
	}
	if said("lend-short") {
		d, err := timeOrNone(o.short)
		if err != nil {
			return console.Usagef("--lend-short: %w", err)
		}
		req.LendShort = durationpb.New(d)
	}
	return nil
}

// lendText says to whom a partition lends, "" for nobody.
func lendText(p *apiv1.Partition) string {
	if len(p.GetLendTo()) == 0 {
		return ""
	}
	text := strings.Join(p.GetLendTo(), ", ") + ": idle GPUs, to jobs with a checkpoint hook"
	if p.GetLendShort() != nil {
		text += ", and to others that end within " + units.FormatDuration(p.GetLendShort().AsDuration())
	}
	return text
}

// loanText says how many GPUs are on loan now, "" for none.
func loanText(p *apiv1.Partition) string {
	var words []string
	for _, l := range []struct {
		n    uint32
		text string
	}{{p.GetGpusLent(), "%s of its own lent to others"}, {p.GetGpusBorrowed(), "%s borrowed from others"}} {
		if l.n > 0 {
			words = append(words, fmt.Sprintf(l.text, console.Plural(int(l.n), "GPU", "GPUs")))
		}
	}
	return strings.Join(slices.Clip(words), ", ")
}

// lentText says how many of the GPUs in use are on loan, "" for none.
func lentText(p *apiv1.Partition) string {
	if p.GetGpusLent() == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d lent)", p.GetGpusLent())
}
