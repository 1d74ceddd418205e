package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// forecastsPerCall is how many forecasts a coordinator accepts in one request.
const forecastsPerCall = 200

// MostForecasts bounds how many jobs of a listing are forecast: each is simulated.
const MostForecasts = 1000

// Forecasts returns when waiting jobs are expected to start, by id. Jobs that
// no longer wait are absent.
func Forecasts(ctx context.Context, c *Client, ids []uint64) (map[uint64]*apiv1.JobForecast, error) {
	out := map[uint64]*apiv1.JobForecast{}
	for part := range slices.Chunk(ids[:min(len(ids), MostForecasts)], forecastsPerCall) {
		resp, err := ListForecasts.Ask(ctx, c, Reads, &apiv1.ListForecastsRequest{Ids: part})
		if err != nil {
			return nil, err
		}
		for _, f := range resp.GetForecasts() {
			out[f.GetId()] = f
		}
	}
	return out, nil
}

// Expect sets when waiting jobs are expected to start, which is the later end
// of the range that berth why prints, for at most left of them; the rest, and
// jobs that cannot be forecast, are left unset. It returns how many are left.
func Expect(ctx context.Context, c *Client, jobs []*apiv1.Job, left int) (int, error) {
	var ids []uint64
	for _, j := range jobs {
		j.EstimatedStart = nil
		if console.Waiting(j.GetState()) && len(ids) < left {
			ids = append(ids, j.GetId())
		}
	}
	if len(ids) == 0 {
		return left, nil
	}
	when, err := Forecasts(ctx, c, ids)
	if err != nil {
		return left, err
	}
	for _, j := range jobs {
		if console.Waiting(j.GetState()) {
			j.EstimatedStart = when[j.GetId()].GetForecast().GetStartP90()
		}
	}
	return left - len(ids), nil
}

// StartText says when a job is expected to start: between two times, or why
// that is unknown.
func StartText(e *console.Env, f *apiv1.Forecast, cannot string) string {
	if f == nil {
		if cannot == "" {
			return ""
		}
		return "cannot say: " + cannot
	}
	early, late := clock(e, f.GetStartP50()), clock(e, f.GetStartP90())
	text := "between " + early + " and " + late
	switch now := e.Now(); {
	case !f.GetStartP90().AsTime().After(now):
		text = "at any moment"
	case !f.GetStartP50().AsTime().After(now):
		text = "by " + late
	case early == late: // such as from time limits alone, or the end of a window
		text = "about " + early
	}
	if n := f.GetAhead(); n > 0 {
		text += fmt.Sprintf("; %s ahead", console.Plural(int(n), "job", "jobs"))
	}
	return text
}

// Waits returns one line on a waiting job: its state, why, and when it is
// expected to start.
func Waits(ctx context.Context, e *console.Env, c *Client, j *apiv1.Job) string {
	parts := []string{j.GetState()}
	if why := console.ReasonText(j.GetReason(), j.GetReasonDetail()); why != "" {
		parts = append(parts, why)
	}
	if when, err := Forecasts(ctx, c, []uint64{j.GetId()}); err == nil {
		if f := when[j.GetId()]; f.GetForecast() != nil {
			parts = append(parts, "expected "+StartText(e, f.GetForecast(), ""))
		}
	}
	return strings.Join(parts, "; ")
}

// clock returns a time of today in hours and minutes, any other in full.
func clock(e *console.Env, t *timestamppb.Timestamp) string {
	at, now := t.AsTime().In(e.Now().Location()), e.Now()
	if at.Year() == now.Year() && at.YearDay() == now.YearDay() {
		return at.Format("15:04")
	}
	return at.Format("2006-01-02 15:04")
}
