package servicecmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// forecast is what earlier days say about a service's load within the time
// that a replica takes to start.
type forecast struct {
	Off bool `json:"off,omitempty"`
	// Known is for how long of the last week the load is known.
	Known float64 `json:"known_seconds"`
	// Load is the highest expected within Ahead, from At on, and Replicas how
	// many that needs; all are absent while there is no forecast. Trend is the
	// last hour relative to what was usual then.
	Load     *float64   `json:"load,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	Ahead    float64    `json:"ahead_seconds,omitempty"`
	Replicas uint32     `json:"replicas,omitempty"`
	Trend    float64    `json:"trend,omitempty"`
}

// forecastOf returns nil for a service that is not scaled by load, and for
// one of another user.
func forecastOf(p *apiv1.Replica) *forecast {
	if p.GetLoadKnown() == nil && !p.GetNoForecast() {
		return nil
	}
	f := &forecast{Off: p.GetNoForecast(), Known: p.GetLoadKnown().AsDuration().Seconds()}
	if p.Forecast != nil {
		at := p.GetForecastAt().AsTime()
		f.Load, f.At, f.Ahead, f.Replicas, f.Trend = p.Forecast, &at, p.GetForecastAhead().AsDuration().Seconds(), p.GetForecastWant(), p.GetForecastTrend()
	}
	return f
}

// forecast puts it into words, "" for nothing.
func (s *shown) forecast(zone *time.Location) string {
	f := s.Forecast
	switch {
	case f == nil:
		return ""
	case f.Off:
		return "off"
	}
	known := units.HumanDuration(time.Duration(f.Known) * time.Second)
	if f.Load == nil {
		return fmt.Sprintf("none yet: it needs the load of most of a day, and only %s is known", known)
	}
	on, _, _ := strings.Cut(s.ScaleOn, "=")
	load := fmt.Sprintf("%.1f %s", *f.Load, on)
	switch on {
	case "":
		load = fmt.Sprintf("%.1f requests per second", *f.Load)
	case service.GPU:
		load = fmt.Sprintf("%.0f%% of a GPU", 100**f.Load)
	}
	ahead := units.HumanDuration(time.Duration(f.Ahead) * time.Second)
	return fmt.Sprintf("%s from %s on, which needs %d (the most of the next %s; the last hour had %.2f of the usual; %s known)", load, f.At.In(zone).Format("15:04"), f.Replicas, ahead, f.Trend, known)
}
