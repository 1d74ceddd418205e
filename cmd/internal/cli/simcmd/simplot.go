package simcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/experiment"
	"github.com/berth-scheduler/berth/scheduler/sim/plot"
)

func (o *simOptions) checkPlots() error {
	return checkPlotFormats(o.plotFormats)
}

func checkPlotFormats(formats []string) error {
	for _, f := range formats {
		if !slices.Contains(plot.Formats(), f) {
			return console.Usagef("--plot-format %s: want some of %s", console.ShortQuote(f), strings.Join(plot.Formats(), ", "))
		}
	}
	return nil
}

// drawAll writes the Gantt chart and the fleet over time of each simulation,
// and the distributions and bars that compare the named settings, each of
// which has the same number of tasks.
func (o *simOptions) drawAll(tasks []*simTask, names []string) error {
	if o.plot == "" {
		return nil
	}
	per := len(tasks) / max(1, len(names))
	var cdf []plot.Series
	for i, t := range tasks {
		if t.rec == nil { // a filling protocol has no time
			continue
		}
		if i%per == 0 {
			cdf = append(cdf, plot.Series{Name: names[i/per], Sorted: t.result.Completions})
		}
		stem := fmt.Sprintf("%s-%s-%d", t.result.Trace, names[i/per], t.seed)
		title := fmt.Sprintf("%s on %s, seed %d", names[i/per], t.result.Trace, t.seed)
		if err := o.write(stem+"-gantt", plot.Gantt(title+": GPUs over time", t.rec, t.result.GPUs)); err != nil {
			return err
		}
		mem := int64(0)
		for _, n := range t.point.fleet.Nodes {
			mem += int64(n.Count) * int64(n.GPUs) * n.MemMiB
		}
		if t.result.MemUtilPct == nil {
			mem = 0
		}
		if err := o.write(stem+"-levels", plot.Levels(title+": utilization over time", t.rec, t.result.GPUs, mem)); err != nil {
			return err
		}
	}
	name := tasks[0].result.Trace
	if len(cdf) > 0 {
		if err := o.write(name+"-jct", plot.CDF(fmt.Sprintf("completion times on %s, seed %d", name, o.seed), cdf)); err != nil {
			return err
		}
	}
	return o.drawBars(name, tasks, names, per)
}

// drawBars compares the settings by the most common figures.
func (o *simOptions) drawBars(trace string, tasks []*simTask, names []string, per int) error {
	var sums []Summary
	for i := range names {
		var rs []*sim.Result
		for _, t := range tasks[i*per : (i+1)*per] {
			rs = append(rs, t.result)
		}
		s, err := summarize(names[i], nil, rs)
		if err != nil {
			return err
		}
		sums = append(sums, s)
	}
	for _, f := range []struct{ name, title string }{
		{"mean_jct_s", "mean completion time"}, {"makespan_s", "makespan"}, {"gpu_util_pct", "GPU utilization"}, {"allocation_pct", "allocation"},
	} {
		var bars []plot.Bar
		for _, s := range sums {
			if v, ok := s.Mean[f.name]; ok {
				bars = append(bars, plot.Bar{Name: s.Policy, Value: v, CI95: s.CI95[f.name]})
			}
		}
		if len(bars) == 0 {
			continue
		}
		if err := o.write(trace+"-"+strings.TrimSuffix(f.name, "_s"), plot.Bars(f.title+" on "+trace, f.name, bars)); err != nil {
			return err
		}
	}
	return nil
}

func (o *simOptions) write(stem string, d *plot.Drawing) error {
	return writePlot(o.plot, stem, d, o.plotFormats)
}

// writePlot writes a drawing in every format; the name is made safe for a file.
func writePlot(dir, stem string, d *plot.Drawing, formats []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	stem = strings.Map(func(r rune) rune {
		if strings.ContainsRune("/\\ :,=\x00", r) {
			return '-'
		}
		return r
	}, stem)
	for _, f := range formats {
		raw, err := d.Bytes(plot.Format(f))
		if err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, stem+"."+f), raw, 0o644); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	return nil
}

// plotBars draws the first figure of an experiment.
func (o *experimentOptions) plotBars(rep *experiment.Report) error {
	if o.plot == "" {
		return nil
	}
	for _, column := range rep.Columns[:min(3, len(rep.Columns))] {
		var bars []plot.Bar
		for _, l := range rep.Lines {
			if v, ok := l.Mean[column]; ok {
				bars = append(bars, plot.Bar{Name: l.Variant, Value: v, CI95: l.CI95[column]})
			}
		}
		if len(bars) == 0 {
			continue
		}
		if err := writePlot(o.plot, "experiment-"+rep.Name+"-"+column, plot.Bars(rep.Title, column, bars), o.plotFormats); err != nil {
			return err
		}
	}
	return nil
}
