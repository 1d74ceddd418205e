package statuscmd

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// How much is shown, so that everything fits 15 lines of 80 columns.
const (
	mostTypes  = 3
	mostJobs   = 3
	mostFaults = 3
	columns    = 80
	barWidth   = 20
)

func (v *summary) print(e *console.Env) {
	width := columns
	if w := e.Width(); e.IsTerminal && w > 0 {
		width = w
	}
	line := func(format string, args ...any) {
		e.Printf("%s\n", strings.TrimRight(console.Cut(console.Escape(fmt.Sprintf(format, args...)), width), " "))
	}
	line("%s: %s, %d wait", cmp.Or(v.Cluster, "This cluster"), runText(int(v.Running)), v.Waiting)
	v.printTypes(line)
	v.printMine(e, line)
	if n := v.Next; n != nil {
		when := "starts " + client.StartText(e, n.forecast, "")
		if n.forecast == nil {
			when = "waits: " + n.CannotSay
		}
		line("Next of yours: %s (%s) %s", n.label, n.Name, when)
	}
	for i, f := range v.Faults {
		if i == mostFaults {
			line("! %d more out of order: berth node list, berth gpu list", len(v.Faults)-i)
			break
		}
		line("! %s", f.text())
	}
	for _, w := range v.Warnings {
		line("! %s", w)
	}
}

func runText(n int) string {
	if n == 1 {
		return "1 job runs"
	}
	return fmt.Sprintf("%d jobs run", n)
}

func (v *summary) printTypes(line func(string, ...any)) {
	shown, wide := v.GPUs[:min(len(v.GPUs), mostTypes)], 0
	for _, t := range shown {
		wide = max(wide, min(console.TextWidth(t.Type), 20))
	}
	for _, t := range shown {
		name := console.Cut(t.Type, 20)
		text := fmt.Sprintf("%s%s %s %d of %d held", name, strings.Repeat(" ", wide-console.TextWidth(name)), t.bar(), t.Held, t.Total)
		if t.Out > 0 {
			text += fmt.Sprintf(", %d out", t.Out)
		}
		if t.Off > 0 {
			text += fmt.Sprintf(", %d powered down", t.Off)
		}
		if t.Held > 0 && t.SellableMiB > 0 {
			text += ", memory " + console.PercentOf(1000*t.GivenMiB/t.SellableMiB)
		}
		if t.Held > 0 && t.MeasuredUtilMilli >= 0 {
			text += ", busy " + console.PercentOf(t.MeasuredUtilMilli)
		}
		line("%s", text)
	}
	if more := len(v.GPUs) - len(shown); more > 0 {
		line("and %s: berth gpu list", console.Plural(more, "more type", "more types"))
	}
}

// bar shows which part of the GPUs is held (#), takes no jobs (x) or is
// powered down (-); each nonzero part has at least one mark.
func (t typeView) bar() string {
	part := func(n int) int {
		if n == 0 {
			return 0
		}
		return max(1, n*barWidth/t.Total)
	}
	held := part(t.Held)
	out := min(part(t.Out), barWidth-held)
	off := min(part(t.Off), barWidth-held-out)
	return "[" + strings.Repeat("#", held) + strings.Repeat("x", out) + strings.Repeat("-", off) + strings.Repeat(".", barWidth-held-out-off) + "]"
}

func (v *summary) printMine(e *console.Env, line func(string, ...any)) {
	m := v.Mine
	if m.Running+m.Waiting == 0 {
		line("Yours: none; berth submit --gpus 1 -- COMMAND")
		return
	}
	on := ""
	if m.GPUs > 0 {
		on = " on " + console.Plural(m.GPUs, "GPU", "GPUs")
	}
	line("Yours: %s%s, %d wait", runText(m.Running), on, m.Waiting)
	for i, j := range m.Jobs {
		if i == mostJobs {
			line("  and %d more: berth queue --me", len(m.Jobs)-i)
			break
		}
		name := console.Cut(j.Name, 16)
		line("  %s %s %s %s on %s%s", client.JobLabel(j.job), name, console.StateCode(j.State), console.Elapsed(e, j.job), console.OrDash(j.Nodes), j.use())
	}
}

// use describes a job's use of its GPUs: the measurements are its own only if
// it shares none of them.
func (j jobView) use() string {
	if j.GPUs == 0 {
		return ""
	}
	given := units.HumanMiB(j.GivenMiB)
	switch {
	case j.MeasuredUtilMilli < 0:
		return ", has " + given
	case j.Shares:
		return fmt.Sprintf(", has %s; with others: %s busy", given, console.PercentOf(j.MeasuredUtilMilli))
	case j.MeasuredUsedMiB < 0:
		return fmt.Sprintf(", has %s; %s busy", given, console.PercentOf(j.MeasuredUtilMilli))
	}
	return fmt.Sprintf(", %s of %s; %s busy", units.HumanMiB(j.MeasuredUsedMiB), given, console.PercentOf(j.MeasuredUtilMilli))
}

func (f faultView) text() string {
	what := "node " + f.Node
	if f.GPU != "" {
		what = "GPU " + f.GPU
	}
	text := what + " is " + f.State
	if f.State == "ready" {
		text = what + " is unhealthy"
	}
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	if f.Mine {
		text = strings.Replace(text, what, what+" (has jobs of yours)", 1)
	}
	return text
}
