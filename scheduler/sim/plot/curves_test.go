package plot_test

import (
	"bytes"
	"image/png"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/plot"
)

// TestCharts: charts lie one below the other, gaps stay gaps, and hostile names are text.
func TestCharts(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	day := []float64{1.7e9, 1.7e9 + 10, 1.7e9 + 20, 1.7e9 + 30}
	all := []plot.Chart{
		{Title: "A100 0 of n1 </svg><script>", Unit: "%", At: day, Zone: time.UTC, From0: true, Most: 100, Curves: []plot.Curve{
			{Name: "memory", Values: []float64{10, nan, 30, 40}}, {Name: "busy", Values: []float64{nan, nan, nan, nan}},
		}},
		{Title: "loss", At: []float64{1, 2}, Curves: []plot.Curve{{Name: "loss", Values: []float64{3, 2}}}},
		{Title: "of a moment", At: []float64{7}, Curves: []plot.Curve{{Values: []float64{1}}}},
	}
	one, err := plot.Charts(all[:1]).Bytes(plot.SVG)
	if err != nil {
		t.Fatal(err)
	}
	three, err := plot.Charts(all).Bytes(plot.SVG)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"memory", "22:13:30", "of a moment", ">step<", "prefers-color-scheme:dark", "sans-serif"} {
		if !strings.Contains(string(three), want) {
			t.Errorf("%q is not drawn", want)
		}
	}
	if strings.Contains(string(three), "<script>") || strings.Contains(string(three), "NaN") {
		t.Error("what is hostile or unknown came through")
	}
	// The known part before a gap and the one after it are two lines.
	if a, b := strings.Count(string(one), "stroke:#4477AA"), strings.Count(string(one), "stroke:#EE6677"); a < 2 || b != 0 {
		t.Errorf("memory has %d lines and busy %d", a, b)
	}
	data, err := plot.Charts(all).Bytes(plot.PNG)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dy() < 7*b.Dx()/10 {
		t.Errorf("three charts take %v", b)
	}
}
