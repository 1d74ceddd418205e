package terms

import (
	"context"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// FewStarts is how many waiting jobs are forecast when starts were not
// explicitly requested: it costs clients that list all jobs with all columns
// little.
const FewStarts = 50

// ExpectStarts sets when the first most of the waiting jobs start in nine
// cases of ten, as berth why says: Slurm's column has room for one time, and
// users who plan by it want the later one. Jobs that cannot be forecast are
// left unset.
func ExpectStarts(ctx context.Context, e *console.Env, c *client.Client, jobs []slurm.Job, most int) error {
	var ids []uint64
	for i := range jobs {
		if jobs[i].Code == "PD" && len(ids) < most {
			ids = append(ids, jobs[i].ID)
		}
	}
	when, err := client.Forecasts(ctx, c, ids)
	if err != nil {
		return err
	}
	for i := range jobs {
		if f := when[jobs[i].ID].GetForecast(); f != nil {
			jobs[i].Expected = Local(f.GetStartP90(), e.Now())
		}
	}
	return nil
}
