package jobcmd

import (
	"context"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// startView is when a waiting job is expected to start.
type startView struct {
	ID        uint64         `json:"id"`
	Name      string         `json:"name"`
	User      string         `json:"user"`
	State     string         `json:"state"`
	Forecast  *view.Forecast `json:"forecast"`
	CannotSay string         `json:"cannot_say"`
}

// printStarts lists the waiting jobs among jobs with their expected starts.
func printStarts(ctx context.Context, e *console.Env, c *client.Client, o *QueueOptions, jobs []*apiv1.Job) error {
	if console.Format(o.Output) == console.FormatTable {
		jobs = client.Folded(jobs)
	}
	var waiting []*apiv1.Job
	var ids []uint64
	for _, j := range jobs {
		if console.Waiting(j.GetState()) {
			waiting, ids = append(waiting, j), append(ids, j.GetId())
		}
	}
	if n := len(ids) - client.MostForecasts; n > 0 {
		e.Warnf("%d jobs wait; the last %d are not shown", len(ids), n)
		waiting = waiting[:client.MostForecasts]
	}
	when, err := client.Forecasts(ctx, c, ids)
	if err != nil {
		return err
	}
	views := []startView{}
	t := &console.Table{NoHead: o.noHeader, Cols: []console.Column{
		{Head: "JOBID", Right: true}, {Head: "NAME", Shrink: true}, {Head: "USER"}, {Head: "STATE"}, {Head: "GPUS", Right: true}, {Head: "EXPECTED START", Shrink: true},
	}}
	for _, j := range waiting {
		f, there := when[j.GetId()]
		if !there {
			continue // it has started in the meantime
		}
		views = append(views, startView{j.GetId(), j.GetName(), j.GetUser(), j.GetState(), view.ForecastOf(f.GetForecast()), f.GetCannotSay()})
		text := client.StartText(e, f.GetForecast(), f.GetCannotSay())
		if j.GetArrayCount() > 1 && f.GetForecast() != nil {
			text = "the first " + text
		}
		t.Add(jobLabel(j), j.GetName(), j.GetUser(), j.GetState(), strconv.Itoa(int(j.GetGpusWanted())), text)
	}
	if done, err := console.PrintList(e, console.Format(o.Output), views); done {
		return err
	}
	return o.shape.Print(e, t)
}
