package jobcmd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// The size of a plot in characters, each of two by four dots.
const (
	plotWidth = 60
	plotRows  = 4
)

// plotJobs draws what jobs reported of their metrics, and what their GPUs
// showed over at most the last week.
func plotJobs(ctx context.Context, e *console.Env, c *client.Client, wanted []oneShown) error {
	for _, w := range wanted {
		resp, err := client.GetSeries.Ask(ctx, c, client.Reads, &apiv1.GetSeriesRequest{Id: w.id, Task: w.task})
		if err != nil {
			return err
		}
		plotMetric(e, resp)
		told := false
		for _, g := range resp.GetGpus() {
			told = told || len(g.GetAt()) > 0
			plotGPU(e, g)
		}
		if !told {
			e.Printf("\nNo GPU measurements are known; they are kept for at most a week\n")
		}
	}
	return nil
}

// plotMetric draws what a job reported of its metric over its steps.
func plotMetric(e *console.Env, resp *apiv1.GetSeriesResponse) {
	const parts = 1000
	steps, values := resp.GetSteps(), resp.GetValues()
	if len(steps) < 2 || len(steps) != len(values) {
		return
	}
	low, high := slices.Min(values), slices.Max(values)
	scaled := make([]int64, len(values))
	for i, v := range values {
		scaled[i] = int64((v - low) / max(high-low, math.SmallestNonzeroFloat64) * parts)
	}
	e.Printf("\n%s, step %d to %d\n", console.Escape(resp.GetMetric()), steps[0], steps[len(steps)-1])
	Plot(e, fmt.Sprintf("%.5g", low), steps, scaled, parts, func(int64) string { return fmt.Sprintf("%.5g", high) })
}

// plotGPU draws one GPU, co-located jobs included.
func plotGPU(e *console.Env, g *apiv1.GPUSeries) {
	at := g.GetAt()
	if n := len(at); n == 0 || len(g.GetUsedMib()) != n || len(g.GetUtilMilli()) != n || len(g.GetPowerW()) != n {
		return
	}
	e.Printf("\n%s %d of %s, all of it, %s\n", console.Escape(g.GetType()), g.GetIndex(), console.Escape(g.GetNode()), span(e.Now(), at[0], at[len(at)-1]))
	var utils, watts []int64
	for i := range at {
		utils, watts = append(utils, int64(g.GetUtilMilli()[i])), append(watts, int64(g.GetPowerW()[i]))
	}
	Plot(e, "memory", at, g.GetUsedMib(), max(1, g.GetMemMib()), console.MemOrDash)
	Plot(e, "busy", at, utils, 1000, console.PercentOf)
	if most := slices.Max(watts); most > 0 {
		Plot(e, "power", at, watts, most, func(w int64) string { return fmt.Sprintf("%d W", w) })
	}
}

// span formats a period, given in seconds since 1970: with the dates, unless
// both are today.
func span(now time.Time, from, to int64) string {
	const day, clock = "2006-01-02", "15:04:05"
	a, b := time.Unix(from, 0).In(now.Location()), time.Unix(to, 0).In(now.Location())
	first, last := clock, clock
	switch today := now.Format(day); {
	case a.Format(day) != b.Format(day):
		first, last = day+" "+clock, day+" "+clock
	case a.Format(day) != today:
		first = day + " " + clock
	}
	return a.Format(first) + " to " + b.Format(last)
}

// Plot draws values of at least 0 over ascending times, with most as text and
// name next to them.
func Plot(e *console.Env, name string, at, values []int64, most int64, text func(int64) string) {
	for i, row := range braille(at, values, most) {
		head := ""
		switch i {
		case 0:
			head = text(most)
		case plotRows - 1:
			head = name
		}
		e.Printf("%10s ┤%s\n", head, strings.TrimRight(row, "\u2800"))
	}
}

// braille draws values over time as dots, from 0 to most; values below 0 are
// unknown. Times ascend. Where several meet, the highest is drawn.
func braille(at, values []int64, most int64) []string {
	const wide, high = 2 * plotWidth, 4 * plotRows
	cells := make([][]rune, plotRows)
	for i := range cells {
		cells[i] = slices.Repeat([]rune{0x2800}, plotWidth)
	}
	span := max(1, at[len(at)-1]-at[0])
	for i, v := range values {
		if v < 0 {
			continue
		}
		x := int(min(wide-1, max(0, at[i]-at[0])*(wide-1)/span))
		y := high - 1 - int(min(v, most)*(high-1)/most)
		// The dots of a character by column and row, in Unicode's numbering.
		bit := [2][4]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}[x%2][y%4]
		cells[y/4][x/2] |= bit
	}
	out := make([]string, plotRows)
	for i, row := range cells {
		out[i] = string(row)
	}
	return out
}

// What --plot can draw other than characters; that takes the program that
// links the library.
const (
	formatSVG console.Format = "svg"
	formatPNG console.Format = "png"
)

func drawn(f console.Format) bool { return f == formatSVG || f == formatPNG }

// plotsIn refuses plots together with machine-readable output, and plots of nothing.
func plotsIn(e *console.Env, f console.Format, plots bool, jobs int) error {
	switch {
	case drawn(f) && !plots:
		return console.Usagef("-o %s: only with --plot", f)
	case drawn(f) && jobs != 1:
		return console.Usagef("-o %s plots one job, but %d are named", f, jobs)
	case f == formatPNG && e.IsTerminal:
		return console.Usagef("-o png: cannot be shown on a terminal; add > curves.png")
	case plots && f != console.FormatTable && !drawn(f):
		return console.Usagef("--plot: only with -o table, svg or png, not -o %s", f)
	}
	return nil
}

// drawElsewhere has berth-lab draw, passing the flags that select the cluster.
func drawElsewhere(e *console.Env, cmd *cobra.Command, f console.Format, args []string) error {
	with := []string{"curves", "-o", string(f)}
	whose := cmd.InheritedFlags()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if whose.Lookup(f.Name) != nil {
			with = append(with, "--"+f.Name+"="+f.Value.String())
		}
	})
	return e.Become(programs.Lab, append(append(with, "--"), args...))
}
