package control

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// setPriority holds jobs for Priority=0 and releases them for Priority=-1, as
// scontrol does; order is left without the word. No other numeric priorities
// exist.
func setPriority(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, v string, order []string) ([]string, error) {
	word := ""
	switch strings.ToLower(v) {
	case "0":
		word = "hold"
	case "-1", "infinite":
		word = "release"
	default:
		return nil, option.Bare("Update of this parameter is not supported: priority=" + v + "\nRequest aborted\n" +
			"there are no numeric priorities: 0 holds the job, nice=N lowers it by N places, a QOS has a priority, and scontrol top puts it before the owner's others")
	}
	var args []string
	for _, id := range ids {
		args = append(args, strconv.FormatUint(id, 10))
	}
	left := slices.DeleteFunc(slices.Clone(order), func(key string) bool { return key == "priority" })
	faults, err := controlJobs(ctx, e, c, word, args)
	if err != nil || len(faults) == 0 {
		return left, err
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.line)
	}
	return left, option.Bare(strings.Join(lines, "\n"))
}

// updateFault returns scontrol's message for a refused change: Slurm's words,
// if it has any, and Berth's reason on the next line.
func updateFault(err error, id uint64) error {
	if words := sbatch.SlurmWords(err); words != "" {
		return option.Bare(fmt.Sprintf("%s for job %d\n%v", words, id, err))
	}
	return fmt.Errorf("slurm_update error: %w", err)
}
