package terms

import (
	"context"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// ExpectStarts fills in when jobs that wait start in nine cases of ten: Slurm's
// column has room for one time, and those who plan by it want the later one.
// Nothing is said of those of which nobody can say.
func ExpectStarts(ctx context.Context, e *console.Env, c *client.Client, jobs []slurm.Job) error {
	var ids []uint64
	for i := range jobs {
		if jobs[i].Code == "PD" {
			ids = append(ids, jobs[i].ID)
		}
	}
	when, err := client.Forecasts(ctx, c, ids)
	if err != nil {
		return err
	}
	for i := range jobs {
		if f, there := when[jobs[i].ID]; there {
			jobs[i].Expected = Local(f.GetForecast().GetStartP90(), e.Now())
		}
	}
	return nil
}
