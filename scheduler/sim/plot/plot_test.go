package plot_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/plot"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// drawings runs a small workload and draws all there is.
func drawings(t *testing.T) map[string]*plot.Drawing {
	t.Helper()
	w := &workload.Workload{Name: "<&>"}
	for i := range 9 {
		w.Jobs = append(w.Jobs, workload.Job{
			ID: strings.Repeat("a<b", i+1), Submit: time.Duration(i) * time.Minute, Duration: time.Hour, GPUs: 1 + i%2, MemMiB: 4000, UsedMilli: 300,
		})
	}
	f := workload.Homogeneous(1, 3, "T4", 16000)
	rec := sim.NewRecorder()
	r, err := sim.Run(context.Background(), w, &f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), Observe: rec})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*plot.Drawing{
		"gantt": plot.Gantt("cards of <&>\n", rec, f.GPUs()), "levels": plot.Levels("fleet", rec, f.GPUs(), 48000),
		"cdf":  plot.CDF("completion", []plot.Series{{Name: "<ffd>", Sorted: r.Completions}, {Name: "spread", Sorted: []float64{1, 10, 1e5}}}),
		"bars": plot.Bars("a & b", "s", []plot.Bar{{Name: "x", Value: 1, CI95: 0.5}, {Name: "<y>", Value: -2}, {Name: "none", Value: math.NaN()}}),
	}
}

// TestDrawings reads what is drawn as XML and as PNG.
func TestDrawings(t *testing.T) {
	t.Parallel()
	for kind, d := range drawings(t) {
		svg, err := d.Bytes(plot.SVG)
		if err != nil {
			t.Fatal(err)
		}
		if n := shapes(t, svg); n < 5 {
			t.Errorf("%s: %d shapes, want the axes, ticks and something", kind, n)
		}
		raw, err := d.Bytes(plot.PNG)
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if s := img.Bounds().Size(); s.X < 300 || s.Y < 100 {
			t.Errorf("%s: an image of %v", kind, s)
		}
	}
}

// shapes counts the paths of a well-formed SVG.
func shapes(t *testing.T, svg []byte) int {
	t.Helper()
	n := 0
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("%v in %.200s", err, svg)
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == "path" {
			n++
		}
	}
}

// TestEqualBytes draws the same twice.
func TestEqualBytes(t *testing.T) {
	t.Parallel()
	one, two := drawings(t), drawings(t)
	for kind := range one {
		for _, f := range plot.Formats() {
			a, err := one[kind].Bytes(plot.Format(f))
			if err != nil {
				t.Fatal(err)
			}
			b, err := two[kind].Bytes(plot.Format(f))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Errorf("%s as %s: the same run was drawn differently", kind, f)
			}
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	t.Parallel()
	rec := sim.NewRecorder()
	for kind, d := range map[string]*plot.Drawing{
		"gantt": plot.Gantt("", rec, 0), "levels": plot.Levels("", rec, 0, 0), "cdf": plot.CDF("", nil), "bars": plot.Bars("", "", nil),
	} {
		if _, err := d.Bytes(plot.SVG); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := plot.CDF("", nil).Bytes("bmp"); err == nil {
		t.Error("an unknown format was taken")
	}
}
