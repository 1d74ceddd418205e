package view

import (
	"time"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Forecast is where and when a job is expected to start.
type Forecast struct {
	Node     string     `json:"node"`
	GPU      string     `json:"gpu"`
	GPUType  string     `json:"gpu_type"`
	Missing  string     `json:"missing"`
	StartP50 *time.Time `json:"start_p50"`
	StartP90 *time.Time `json:"start_p90"`
	Ahead    uint32     `json:"ahead"`
}

// ForecastOf returns the view of a forecast, nil for none.
func ForecastOf(f *apiv1.Forecast) *Forecast {
	if f == nil {
		return nil
	}
	return &Forecast{f.GetNode(), f.GetGpu(), f.GetGpuType(), f.GetMissing(), Stamp(f.GetStartP50()), Stamp(f.GetStartP90()), f.GetAhead()}
}
