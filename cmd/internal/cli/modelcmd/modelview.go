package modelcmd

import (
	"fmt"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type modelView struct {
	Version      uint64     `json:"version"`
	InUse        bool       `json:"in_use"`
	Pinned       bool       `json:"pinned"`
	SHA256       string     `json:"sha256"`
	SizeBytes    uint64     `json:"size_bytes"`
	Published    *time.Time `json:"published"`
	Source       string     `json:"source"`
	By           *uint32    `json:"by"`
	RolledBackTo uint64     `json:"rolled_back_to"`
	Trained      uint32     `json:"trained"`
	Tested       uint32     `json:"tested"`
	ErrorBefore  float64    `json:"error_before"`
	ErrorAfter   float64    `json:"error_after"`
	Reason       string     `json:"reason"`
}

type accuracyView struct {
	Runs            uint32  `json:"runs"`
	MeanError       float64 `json:"mean_error"`
	MedianError     float64 `json:"median_error"`
	WithinP95       float64 `json:"within_p95"`
	UtilRuns        uint32  `json:"util_runs"`
	UtilMedianError float64 `json:"util_median_error"`
	TimeRuns        uint32  `json:"time_runs"`
	TimeMedianError float64 `json:"time_median_error"`
	OutOfMemory     uint32  `json:"out_of_memory"`
}

type modelShowView struct {
	Model    modelView    `json:"model"`
	Accuracy accuracyView `json:"accuracy"`
	Samples  uint32       `json:"samples"`
	// Interference is what was learned about jobs that share a GPU.
	Interference view.InterferenceView `json:"interference"`
}

func viewModel(m *apiv1.Model) modelView {
	return modelView{
		Version: m.GetVersion(), InUse: m.GetInUse(), Pinned: m.GetPinned(), SHA256: m.GetSha256(), SizeBytes: m.GetSizeBytes(),
		Published: view.Stamp(m.GetPublished()), Source: m.GetSource(), By: m.By, RolledBackTo: m.GetRolledBackTo(),
		Trained: m.GetTrained(), Tested: m.GetTested(), ErrorBefore: m.GetErrorBefore(), ErrorAfter: m.GetErrorAfter(), Reason: m.GetReason(),
	}
}

func viewAccuracy(a *apiv1.Accuracy) accuracyView {
	return accuracyView{
		Runs: a.GetRuns(), MeanError: a.GetMeanError(), MedianError: a.GetMedianError(), WithinP95: a.GetWithinP95(),
		UtilRuns: a.GetUtilRuns(), UtilMedianError: a.GetUtilMedianError(), TimeRuns: a.GetTimeRuns(), TimeMedianError: a.GetTimeMedianError(),
		OutOfMemory: a.GetOutOfMemory(),
	}
}

func modelState(m *apiv1.Model) string {
	switch {
	case m.GetPinned():
		return "in use, pinned"
	case m.GetInUse():
		return "in use"
	default:
		return "kept"
	}
}

func modelAge(e *console.Env, m *apiv1.Model) string {
	if m.GetPublished() == nil {
		return "-"
	}
	return console.Clock(e.Now().Sub(m.GetPublished().AsTime()))
}

func modelSource(m *apiv1.Model) string {
	if m.GetRolledBackTo() > 0 {
		return "rollback to " + strconv.FormatUint(m.GetRolledBackTo(), 10)
	}
	return m.GetSource()
}

func modelSamples(m *apiv1.Model) string {
	if m.GetTested() == 0 {
		return "-"
	}
	return fmt.Sprintf("%d+%d", m.GetTrained(), m.GetTested())
}

// modelError returns "-" if nothing was tested.
func modelError(m *apiv1.Model, v float64) string {
	if m.GetTested() == 0 {
		return "-"
	}
	return ratioText(v)
}

func ratioText(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + "%" }

func sizeText(n uint64) string {
	if n < 10<<10 {
		return strconv.FormatUint(n, 10) + " B"
	}
	return strconv.FormatUint(n>>10, 10) + " KiB"
}

func printModelLine(e *console.Env, m *apiv1.Model) {
	e.Printf("model version %d: %s (%s)\n", m.GetVersion(), modelState(m), modelSource(m))
}
