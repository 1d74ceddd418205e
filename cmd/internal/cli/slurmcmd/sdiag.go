package slurmcmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const sdiagExamples = "  berth sdiag\n  ln -s /usr/bin/berth /usr/local/bin/sdiag && sdiag | grep 'cycle'"

// NewSdiagCmd returns the command sdiag.
func NewSdiagCmd(e *console.Env, c *client.Client) *cobra.Command {
	return option.Command(e, "sdiag [OPTIONS…]", "Show scheduler statistics, like Slurm's sdiag", sdiagExamples, func(fs *pflag.FlagSet) {
		fs.BoolP("all", "a", false, "the same as without it")
		option.Ignore(fs, "requests are sorted by count", "sort-by-id,i", "sort-by-name,n", "sort-by-time,t", "sort-by-time2,T")
		option.Refuse(fs, "reset", "r", false, "figures count from the coordinator's start; see its metrics for rates")
		option.Clusters(fs)
	}, func(ctx context.Context, _ []string) error {
		st, err := terms.Status(ctx, c)
		if err != nil {
			return err
		}
		if st.GetFigures() == nil {
			return errors.New("the coordinators' release does not count this; upgrade them")
		}
		s := sdiagOf(st, e)
		return s.Print(e.Out)
	})
}

// sdiagOf returns the leader's figures in Slurm's terms: planning only new
// jobs, or which is next on a free GPU, is Slurm's main loop, and a pass over
// all waiting jobs its backfilling.
func sdiagOf(st *apiv1.GetStatusResponse, e *console.Env) slurm.Sdiag {
	f, now := st.GetFigures(), e.Now()
	s := slurm.Sdiag{Now: terms.Local(st.GetNow(), now), Since: terms.Local(f.GetSince(), now), InFlight: f.GetInFlight()}
	for _, p := range f.GetPasses() {
		x := slurm.Passes{
			Count: p.GetCount(), LastUs: p.GetLastUs(), MaxUs: p.GetMaxUs(), TotalUs: p.GetTotalUs(), LastDepth: p.GetLastDepth(), TotalDepth: p.GetTotalDepth(), Started: p.GetStarted(),
		}
		switch p.GetKind() {
		case "full":
			s.Backfill = x
		case "arrival":
			x.Started += s.Main.Started
			s.Main = x
		default:
			s.Main.Started += x.Started
		}
	}
	for _, j := range st.GetJobs() {
		state, err := cluster.ParseJobState(j.GetState())
		switch {
		case err != nil:
		case state.Waiting():
			s.Pending += uint64(j.GetCount())
		case !state.Terminal():
			s.Running += uint64(j.GetCount())
		}
	}
	for _, call := range f.GetCalls() {
		s.RPCs = append(s.RPCs, slurm.RPC{Name: call.GetMethod(), Count: call.GetCount(), TotalUs: call.GetTotalUs()})
	}
	return s
}
