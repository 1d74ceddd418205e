package plot

import (
	"fmt"
	"hash/fnv"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim"
)

// drawnCards bounds the rows of a Gantt chart, lanes the jobs distinguished on one
// GPU.
const (
	drawnCards = 64
	lanes      = 4
)

// Gantt draws the attempts of a run on the first 64 GPUs, one row for each. Jobs
// that share a GPU are above each other; dark ones did not complete.
func Gantt(title string, rec *sim.Recorder, cards int) *Drawing {
	rows := max(1, min(cards, drawnCards))
	bars, more := rec.Bars()
	d := newDrawing(title, wide, 90+float64(rows)*max(7, 60/float64(rows)))
	d.p.X.Label.Text = "hours"
	if left := cards - rows; left > 0 {
		d.p.X.Label.Text += fmt.Sprintf("; %d more cards are not drawn", left)
	}
	if more > 0 {
		d.p.X.Label.Text += fmt.Sprintf("; %d later attempts are not drawn", more)
	}
	d.p.Y.Label.Text = "GPU"
	c := &chart{rows: rows}
	end := time.Duration(0)
	for _, b := range bars {
		if b.Card < rows {
			c.bars = append(c.bars, b)
		}
		end = max(end, b.To)
	}
	slices.SortStableFunc(c.bars, func(a, b sim.Bar) int { return int(min(1, max(-1, a.From-b.From))) })
	d.p.Add(c)
	d.from0(end.Hours(), float64(rows))
	d.p.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}}
	d.p.Y.Tick.Marker = rowTicks(rows)
	return d
}

// rowTicks numbers at most 16 rows.
func rowTicks(rows int) plot.ConstantTicks {
	var out plot.ConstantTicks
	for i := 0; i < rows; i += max(1, (rows+15)/16) {
		out = append(out, plot.Tick{Value: float64(i) + 0.5, Label: fmt.Sprint(i)})
	}
	return out
}

// chart is a plotter of bars.
type chart struct {
	rows int
	bars []sim.Bar
}

// Plot implements plot.Plotter.
func (g *chart) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	taken := make([][lanes]time.Duration, g.rows)
	for _, b := range g.bars {
		lane := freeLane(&taken[b.Card], b)
		top := float64(b.Card) + 0.05 + 0.9*float64(lane)/lanes
		x0, x1 := x(b.From.Hours()), max(x(b.To.Hours()), x(b.From.Hours())+vg.Points(0.2))
		y0, y1 := y(top), y(top+0.9/lanes)
		c.FillPolygon(colourOf(b), []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
	}
}

// freeLane finds the first lane of a GPU that is free for an attempt; if all are
// taken it uses the last.
func freeLane(l *[lanes]time.Duration, b sim.Bar) int {
	for i := range l {
		if l[i] <= b.From || i == lanes-1 {
			l[i] = max(l[i], b.To)
			return i
		}
	}
	return lanes - 1
}

func colourOf(b sim.Bar) color.Color {
	if b.How != cluster.JobCompleted {
		return color.RGBA{0x33, 0x33, 0x33, 255}
	}
	h := fnv.New32a()
	h.Write([]byte(b.Job))
	return shade(int(h.Sum32() % 6)) // the seventh is grey
}

// Levels draws what of the fleet is allocated, busy and filled with memory over
// time, in per cent of GPUs and memory.
func Levels(title string, rec *sim.Recorder, cards int, memMiB int64) *Drawing {
	d := newDrawing(title, wide, tall)
	d.p.X.Label.Text, d.p.Y.Label.Text = "hours", "% of all cards"
	all := float64(max(1, cards)) * cluster.WholeGPU
	var alloc, used, mem plotter.XYs
	end := 0.0
	for _, l := range rec.Levels() {
		end = l.At.Hours()
		alloc = append(alloc, plotter.XY{X: end, Y: 100 * float64(l.Alloc) / all})
		used = append(used, plotter.XY{X: end, Y: 100 * float64(l.Used) / all})
		if memMiB > 0 {
			mem = append(mem, plotter.XY{X: end, Y: 100 * float64(l.Mem) / float64(memMiB)})
		}
	}
	d.steps("given away", alloc, 0)
	d.steps("busy", used, 1)
	d.steps("memory", mem, 2)
	d.from0(end, 105)
	return d
}
