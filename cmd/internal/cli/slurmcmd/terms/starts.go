package terms

import (
	"context"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// FewStarts is of how many jobs that wait it is said when they start where nobody asked
// for just that: clients that list all jobs with all columns pay little for it.
const FewStarts = 50

// ExpectStarts fills in when the first most of the jobs that wait start in nine cases of
// ten, as berth why says: Slurm's column has room for one time, and those who plan by it
// want the later one. Nothing is said of those of which nobody can say.
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
