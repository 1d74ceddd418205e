package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// profileView is what a node observed of an attempt while it ran.
type profileView struct {
	GPUMemMeanMiB       int64      `json:"gpu_mem_mean_mib"`
	GPUUtilP95          float64    `json:"gpu_util_p95"`     // 0–1
	GPUMemActivity      float64    `json:"gpu_mem_activity"` // 0–1
	EnergyJ             int64      `json:"energy_j"`
	HostMemHighWaterMiB int64      `json:"host_mem_high_water_mib"`
	ReadBytes           int64      `json:"read_bytes"`
	WrittenBytes        int64      `json:"written_bytes"`
	SampledSeconds      float64    `json:"sampled_seconds"`
	GapSeconds          float64    `json:"gap_seconds"`
	Neighbours          []spanView `json:"neighbours"`
	MoreNeighbours      uint32     `json:"more_neighbours"`
}

type spanView struct {
	Job         uint64  `json:"job"`
	FromSeconds float64 `json:"from_seconds"`
	Seconds     float64 `json:"seconds"`
	GPUUtil     float64 `json:"gpu_util"` // 0–1
}

func viewProfile(p *apiv1.Profile) *profileView {
	if p == nil {
		return nil
	}
	v := &profileView{
		GPUMemMeanMiB: p.GetGpuMemMeanMib(), GPUUtilP95: milli(p.GetGpuUtilP95Milli()), GPUMemActivity: milli(p.GetGpuMemActivityMilli()),
		EnergyJ: p.GetEnergyJ(), HostMemHighWaterMiB: p.GetHostMemHighWaterMib(), ReadBytes: p.GetReadBytes(), WrittenBytes: p.GetWrittenBytes(),
		SampledSeconds: p.GetSampledSeconds(), GapSeconds: p.GetGapSeconds(), Neighbours: []spanView{}, MoreNeighbours: p.GetMoreNeighbours(),
	}
	for _, n := range p.GetNeighbours() {
		v.Neighbours = append(v.Neighbours, spanView{n.GetJob(), n.GetFromSeconds(), n.GetSeconds(), milli(n.GetGpuUtilMilli())})
	}
	return v
}

func milli(n int64) float64 { return float64(n) / 1000 }

// ShowUsed prints what a job used of what it had. Without a profile that is
// one line among the others.
func ShowUsed(e *console.Env, j *apiv1.Job) {
	m := j.GetMeasured()
	p := m.GetProfile()
	if p == nil {
		return
	}
	e.Printf("Used\n")
	kv := []string{}
	if len(j.GetGpus()) > 0 {
		kv = append(kv,
			"GPU memory", usedGPUMem(m, j.GetGpus()),
			"GPU", usedGPU(m),
			"energy", usedEnergy(m),
			"neighbours", usedBeside(p),
		)
	}
	kv = append(kv,
		"CPU", outOf(console.Cores(m.GetCpuMilli())+" cores", j.GetSpec().GetCpuMilli(), console.Cores),
		"memory", usedHost(m, j.GetSpec().GetMemMib()),
		"storage", fmt.Sprintf("%s read, %s written", storedText(p.GetReadBytes()), storedText(p.GetWrittenBytes())),
		"measured", lookedAt(p),
	)
	console.KeyValues(e, "  ", kv...)
}

func outOf(text string, had int64, format func(int64) string) string {
	if had > 0 {
		text += " of " + format(had)
	}
	return text
}

func usedGPUMem(m *apiv1.Measured, gpus []*apiv1.GPUShare) string {
	text := outOf("none seen", gpus[0].GetShare().GetMemMib(), units.HumanMiB)
	if most := m.GetGpuMemMib(); most > 0 {
		text = outOf("at most "+units.HumanMiB(most), gpus[0].GetShare().GetMemMib(), units.HumanMiB)
		text += ", mean " + console.MemOrDash(m.GetProfile().GetGpuMemMeanMib())
	}
	if len(gpus) > 1 {
		text += ", on the fullest of its " + console.Plural(len(gpus), "GPU", "GPUs")
	}
	if m.GetGpuOom() {
		text += "; more was refused"
	}
	return text
}

func usedGPU(m *apiv1.Measured) string {
	p := m.GetProfile()
	text := fmt.Sprintf("mean %s, %s or less for 95%% of the time", console.PercentOf(m.GetGpuUtilMilli()), console.PercentOf(p.GetGpuUtilP95Milli()))
	if n := p.GetGpuMemActivityMilli(); n > 0 {
		text += fmt.Sprintf("; GPU memory was busy %s", console.PercentOf(n))
	}
	return text
}

func usedEnergy(m *apiv1.Measured) string {
	j := m.GetProfile().GetEnergyJ()
	if j == 0 {
		return ""
	}
	text := fmt.Sprintf("%d J", j)
	if j >= 36_000 {
		text = fmt.Sprintf("%.1f kJ (%.1f Wh)", float64(j)/1000, float64(j)/3600)
	}
	text += " of its GPUs"
	if w := m.GetPowerW(); w > 0 {
		text += fmt.Sprintf(", which drew %d W each with everything on them", w)
	}
	return text
}

func usedHost(m *apiv1.Measured, had int64) string {
	text := outOf("at most "+console.MemOrDash(m.GetHostMemMib()), had, units.HumanMiB)
	most, high := console.MemOrDash(m.GetHostMemMib()), console.MemOrDash(m.GetProfile().GetHostMemHighWaterMib())
	if m.GetProfile().GetHostMemHighWaterMib() > m.GetHostMemMib() && high != most {
		text += fmt.Sprintf("; %s with page cache", high)
	}
	return text
}

func usedBeside(p *apiv1.Profile) string {
	var out []string
	for _, n := range p.GetNeighbours() {
		out = append(out, fmt.Sprintf("%d (%s at %s, from %s on)", n.GetJob(), exactSeconds(n.GetSeconds()), console.PercentOf(n.GetGpuUtilMilli()), exactSeconds(n.GetFromSeconds())))
	}
	if more := p.GetMoreNeighbours(); more > 0 {
		out = append(out, fmt.Sprintf("%d shorter", more))
	}
	return strings.Join(out, ", ")
}

func lookedAt(p *apiv1.Profile) string {
	text := exactSeconds(p.GetSampledSeconds())
	if g := p.GetGapSeconds(); g > 0 {
		text += "; not measured for " + exactSeconds(g)
	}
	return text
}

func exactSeconds(s float64) string {
	if s < 10 {
		return fmt.Sprintf("%.1fs", s)
	}
	return units.HumanDuration(time.Duration(s * float64(time.Second)))
}

// storedText formats a number of bytes; sizes below a MiB are not distinguished.
func storedText(n int64) string {
	switch mib := (n + 1<<19) >> 20; {
	case n == 0:
		return "nothing"
	case mib == 0:
		return "less than 1 MiB"
	default:
		return units.HumanMiB(mib)
	}
}
