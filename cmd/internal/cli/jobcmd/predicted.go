package jobcmd

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/model"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// unpredicted reports whether nothing is known of a job beyond the defaults.
func unpredicted(p *apiv1.Prediction) bool {
	return p.GetSource() == "" || p.GetSource() == string(model.SourceNone)
}

// predictionText returns the short form: "11.2 GiB, 30%, 2h05m" for a job
// with GPUs, "2.0 GiB, 1 core, 2h05m" for one without, in host memory.
func predictionText(j *apiv1.Job) string {
	p := j.GetPredicted()
	switch {
	case p == nil || p.GetGpuMemMib() == 0 && p.GetSeconds() == 0 || unpredicted(p):
		return "-"
	case p.GetGpuType() == cluster.CPUType || j.GetGpusWanted() == 0:
		return fmt.Sprintf("%s, %s, %s", console.MemOrDash(p.GetHostMemMib()), console.CoresText(p.GetCpuMilli()), console.SecondsText(p.GetSeconds()))
	}
	return fmt.Sprintf("%s, %s, %s", console.MemOrDash(p.GetGpuMemMib()), console.PercentOf(p.GetGpuUtilMilli()), console.SecondsText(p.GetSeconds()))
}

// startText says when a waiting job starts, in the words of why; "" if the
// coordinator was not asked or the job does not wait.
func startText(e *console.Env, f *apiv1.JobForecast) string {
	return client.StartText(e, f.GetForecast(), f.GetCannotSay())
}

func predictedText(p *apiv1.Prediction) string {
	if p == nil {
		return ""
	}
	seconds := "time unknown"
	if p.GetSeconds() > 0 {
		seconds = console.TimeText(p)
	}
	if unpredicted(p) {
		if p.GetGpuType() == cluster.CPUType {
			return "nothing is known about it, " + seconds
		}
		if p.GetTimeConfidence() > 0 { // its runs used no GPU
			return "its GPU needs are not known: whole GPUs until a run has been measured; " + seconds
		}
		return "nothing is known about it: whole GPUs until a run has been measured, " + seconds
	}
	known := fmt.Sprintf("; confidence %.0f%%, from %s", 100*p.GetConfidence(), p.GetSource())
	if p.GetGpuType() == cluster.CPUType {
		return fmt.Sprintf("host memory %s, %s, %s", console.MemOrDash(p.GetHostMemMib()), console.CoresText(p.GetCpuMilli()), seconds) + known
	}
	return fmt.Sprintf("GPU memory %s (95%%: %s), GPU %s, %s on %s", console.MemOrDash(p.GetGpuMemMib()), console.MemOrDash(p.GetGpuMemP95Mib()),
		console.PercentOf(p.GetGpuUtilMilli()), seconds, console.OrDash(p.GetGpuType())) + known
}
