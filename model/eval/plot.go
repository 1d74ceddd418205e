package eval

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Size of a drawing, in pixels.
const (
	plotWidth, plotHeight = 640, 560
	plotLeft, plotTop     = 80, 50
	plotRight, plotBottom = 20, 60
	maxDots               = 4000
)

// Plot writes drawings of results into dir, which it creates: predicted against
// measured, on logarithmic axes, for each data set and target, and the mean error
// by split. It returns the names of the files. Equal results give equal bytes.
func Plot(dir string, rs []Result) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("draw results: %w", err)
	}
	var names []string
	write := func(name, svg string) error {
		names = append(names, name)
		return os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644)
	}
	for _, group := range groups(rs) {
		first := group[0]
		base := fileName(first.Dataset + "_" + string(first.Target))
		for _, r := range hardest(group) {
			if err := write(fileName(base+"_"+r.Trainer)+".svg", scatter(r)); err != nil {
				return nil, fmt.Errorf("draw results: %w", err)
			}
		}
		if err := write(base+"_mape.svg", bars(group)); err != nil {
			return nil, fmt.Errorf("draw results: %w", err)
		}
	}
	return names, nil
}

// groups groups results by data set and target, in their order.
func groups(rs []Result) [][]*Result {
	var out [][]*Result
	for i := range rs {
		r := &rs[i]
		if n := len(out); n > 0 && out[n-1][0].Dataset == r.Dataset && out[n-1][0].Target == r.Target {
			out[n-1] = append(out[n-1], r)
			continue
		}
		out = append(out, []*Result{r})
	}
	return out
}

// hardest picks for each trainer the last of its splits, which says most about
// unseen jobs.
func hardest(group []*Result) []*Result {
	var out []*Result
	for _, r := range group {
		i := slices.IndexFunc(out, func(o *Result) bool { return o.Trainer == r.Trainer })
		if i < 0 {
			out = append(out, r)
		} else {
			out[i] = r
		}
	}
	return out
}

// fileName keeps letters, digits, '_' and '-'.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
}

// svg builds elements.
type svg struct{ strings.Builder }

func (s *svg) open(title string) {
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(s, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	s.text(plotWidth/2, 24, "middle", title)
}

func (s *svg) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
}

func (s *svg) text(x, y float64, anchor, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, xmlText(text))
}

func (s *svg) close() string {
	_, _ = s.WriteString("</svg>\n")
	return s.String()
}

func xmlText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(strings.ToValidUTF8(s, "?"))
}

// unit of a target's figures.
func (t Target) unit() string {
	switch t {
	case Util:
		return "% of the GPU"
	case Time:
		return "ms a step"
	default:
		return "MiB"
	}
}

// scatter draws predicted against measured.
func scatter(r *Result) string {
	lo, hi := math.Inf(1), 0.0
	for _, p := range r.Points {
		for _, v := range []float64{p.Actual, p.Predicted} {
			if v > 0 && !p.Censored {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	var s svg
	s.open(r.Title())
	if hi == 0 {
		return s.close()
	}
	from, to := math.Floor(math.Log10(lo)), math.Ceil(math.Log10(hi))
	if to <= from {
		to = from + 1
	}
	at := func(v, low, high float64) float64 { return low + (high-low)*(math.Log10(v)-from)/(to-from) }
	x := func(v float64) float64 { return at(v, plotLeft, plotWidth-plotRight) }
	y := func(v float64) float64 { return at(v, plotHeight-plotBottom, plotTop) }
	for e := from; e <= to; e++ {
		v := math.Pow(10, e)
		s.line(x(v), plotTop, x(v), plotHeight-plotBottom, `stroke="#ddd"`)
		s.line(plotLeft, y(v), plotWidth-plotRight, y(v), `stroke="#ddd"`)
		s.text(x(v), plotHeight-plotBottom+18, "middle", fmt.Sprintf("%g", v))
		s.text(plotLeft-6, y(v)+4, "end", fmt.Sprintf("%g", v))
	}
	low, high := math.Pow(10, from), math.Pow(10, to)
	s.line(x(low), y(low), x(high), y(high), `stroke="#888"`)
	step := max(1, (len(r.Points)+maxDots-1)/maxDots)
	for i := 0; i < len(r.Points); i += step {
		if p := r.Points[i]; p.Predicted > 0 && p.Actual > 0 && !p.Censored {
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="2" fill="#1f77b4" fill-opacity="0.4"/>`+"\n", x(p.Actual), y(p.Predicted))
		}
	}
	s.text(plotWidth/2, plotHeight-18, "middle", "measured, "+r.Target.unit())
	s.text(plotLeft, plotTop-8, "start", "predicted, "+r.Target.unit())
	return s.close()
}

// palette has one colour for each trainer of a drawing, and then begins again.
func palette(i int) string {
	return []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"}[i%6]
}

// bars draws the mean error of each trainer, by split.
func bars(group []*Result) string {
	var s svg
	s.open(group[0].Dataset + " " + string(group[0].Target) + ": mean absolute error, %")
	var trainers, splits []string
	most := 1.0
	for _, r := range group {
		if !slices.Contains(trainers, r.Trainer) {
			trainers = append(trainers, r.Trainer)
		}
		if !slices.Contains(splits, string(r.Split)) {
			splits = append(splits, string(r.Split))
		}
		if v := 100 * r.scores.mape; !math.IsNaN(v) && !math.IsInf(v, 0) {
			most = max(most, v)
		}
	}
	const floor = plotHeight - plotBottom
	slot := float64(plotWidth-plotLeft-plotRight) / float64(len(splits))
	width := slot * 0.8 / float64(len(trainers))
	s.line(plotLeft, floor, plotWidth-plotRight, floor, `stroke="black"`)
	for _, r := range group {
		i, j := slices.Index(splits, string(r.Split)), slices.Index(trainers, r.Trainer)
		v := 100 * r.scores.mape
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		h := (floor - plotTop - 20) * v / most
		left := plotLeft + slot*(float64(i)+0.1) + width*float64(j)
		fmt.Fprintf(&s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left, floor-h, width, h, palette(j))
		s.text(left+width/2, floor-h-4, "middle", fmt.Sprintf("%.1f", v))
	}
	for i, sp := range splits {
		s.text(plotLeft+slot*(float64(i)+0.5), floor+18, "middle", sp)
	}
	for j, t := range trainers {
		left := plotLeft + 110*float64(j)
		fmt.Fprintf(&s, `<rect x="%.1f" y="%d" width="10" height="10" fill="%s"/>`+"\n", left, plotHeight-28, palette(j))
		s.text(left+14, plotHeight-19, "start", t)
	}
	return s.close()
}
