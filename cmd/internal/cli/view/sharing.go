package view

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// BesideView is what predict --beside prints.
type BesideView struct {
	Predictions []*PredictedView `json:"predictions"`
	Sharing     []sharingView    `json:"sharing"`
}

type sharingView struct {
	GPUType string          `json:"gpu_type"`
	Mode    string          `json:"mode"`
	Limit   float64         `json:"limit"` // 0 is none
	Jobs    []sharedJobView `json:"jobs"`
	Advice  adviceView      `json:"advice"`
}

type sharedJobView struct {
	ID       uint64   `json:"id"` // 0 is the predicted job
	Speed    float64  `json:"speed"`
	Slowdown float64  `json:"slowdown"`
	Parts    []string `json:"parts"`
}

type adviceView struct {
	GPUType string  `json:"gpu_type"`
	Mode    string  `json:"mode"`
	Verdict string  `json:"verdict"` // gains, loses or unsure
	Pairs   uint32  `json:"pairs"`
	Losing  uint32  `json:"losing"`
	MeanSum float64 `json:"mean_sum"`
	StdErr  float64 `json:"std_err"`
}

func viewAdvice(a *apiv1.SharingAdvice) adviceView {
	return adviceView{a.GetGpuType(), a.GetMode(), a.GetVerdict(), a.GetPairs(), a.GetLosing(), a.GetMeanSum(), a.GetStdErr()}
}

// Sharing returns the view of how jobs would share a GPU.
func Sharing(ss []*apiv1.Sharing) []sharingView {
	out := []sharingView{}
	for _, s := range ss {
		v := sharingView{GPUType: s.GetGpuType(), Mode: s.GetMode(), Limit: s.GetLimit(), Jobs: []sharedJobView{}, Advice: viewAdvice(s.GetAdvice())}
		for _, j := range s.GetJobs() {
			v.Jobs = append(v.Jobs, sharedJobView{j.GetId(), j.GetSpeed(), j.GetSlowdown(), append([]string{}, j.GetParts()...)})
		}
		out = append(out, v)
	}
	return out
}

// SlowdownText formats a slowdown factor.
func SlowdownText(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) + "×" }

func sharedName(id uint64) string {
	if id == 0 {
		return "the new one"
	}
	return strconv.FormatUint(id, 10)
}

// PrintSharing shows how jobs get on with each other; after says that
// output precedes it.
func PrintSharing(e *console.Env, ss []*apiv1.Sharing, explain, after bool) {
	if after {
		e.Printf("\n")
	}
	if len(ss) == 0 {
		e.Printf("No GPU of this cluster can be shared.\n")
		return
	}
	t := &console.Table{Cols: []console.Column{
		{Head: "GPU_TYPE"}, {Head: "SHARED_BY"}, {Head: "JOB", Right: true}, {Head: "SPEED", Right: true}, {Head: "SLOWDOWN", Right: true}, {Head: "LIMIT"},
	}}
	for _, s := range ss {
		for _, j := range s.GetJobs() {
			limit := "none"
			if l := s.GetLimit(); l > 0 {
				limit = "within " + strconv.FormatFloat(l, 'f', -1, 64) + "×"
				if j.GetSlowdown() > l {
					limit = "above " + strconv.FormatFloat(l, 'f', -1, 64) + "×"
				}
			}
			t.Add(s.GetGpuType(), s.GetMode(), sharedName(j.GetId()), fmt.Sprintf("%.0f%%", 100*j.GetSpeed()), SlowdownText(j.GetSlowdown()), limit)
		}
	}
	t.Print(e)
	if !explain {
		return
	}
	for _, s := range ss {
		e.Printf("\n%s by %s: %s\n", console.Escape(s.GetGpuType()), console.Escape(s.GetMode()), adviceText(s.GetAdvice()))
		for _, j := range s.GetJobs() {
			e.Printf("  %s is slowed down %s\n", sharedTitle(j.GetId()), SlowdownText(j.GetSlowdown()))
			for _, p := range j.GetParts() {
				e.Printf("    by %s\n", console.Escape(p))
			}
		}
	}
}

func sharedTitle(id uint64) string {
	if id == 0 {
		return "the new job"
	}
	return "job " + strconv.FormatUint(id, 10)
}

// adviceText says whether sharing pays, with the numbers behind it.
func adviceText(a *apiv1.SharingAdvice) string {
	if a.GetPairs() == 0 {
		return "no pair of jobs has been measured yet"
	}
	text := map[string]string{"gains": "sharing gains", "loses": "sharing loses, so no jobs are placed beside others"}[a.GetVerdict()]
	text = cmp.Or(text, "unsure whether sharing gains")
	return fmt.Sprintf("%s: two jobs together get %.2f ± %.2f times the throughput of taking turns (%s, %d below 1)",
		text, a.GetMeanSum(), a.GetStdErr(), console.Plural(int(a.GetPairs()), "pair", "pairs"), a.GetLosing())
}

// InterferenceView is what the cluster learned about jobs that share a GPU.
type InterferenceView struct {
	Version      uint64       `json:"version"`
	Observations uint32       `json:"observations"`
	SHA256       string       `json:"sha256"`
	SizeBytes    uint64       `json:"size_bytes"`
	Advice       []adviceView `json:"advice"`
}

// Interference returns the view of learned interference.
func Interference(in *apiv1.Interference) InterferenceView {
	v := InterferenceView{
		Version: in.GetVersion(), Observations: in.GetObservations(), SHA256: in.GetSha256(), SizeBytes: in.GetSizeBytes(), Advice: []adviceView{},
	}
	for _, a := range in.GetAdvice() {
		v.Advice = append(v.Advice, viewAdvice(a))
	}
	return v
}

// PrintInterference reports whether sharing pays on each type of GPU.
func PrintInterference(e *console.Env, in *apiv1.Interference) {
	e.Printf("\nJobs that share a GPU\n")
	if in.GetVersion() == 0 {
		e.Printf("  nothing learned yet: that takes jobs that ran both alone and beside others\n")
		return
	}
	kv := []string{"Learned from", fmt.Sprintf("%s, version %d, %s ago", console.Plural(int(in.GetObservations()), "run beside others", "runs beside others"),
		in.GetVersion(), console.Clock(e.Now().Sub(in.GetPublished().AsTime())))}
	for _, a := range in.GetAdvice() {
		kv = append(kv, a.GetGpuType()+" by "+a.GetMode(), adviceText(a))
	}
	console.KeyValues(e, "  ", kv...)
}
