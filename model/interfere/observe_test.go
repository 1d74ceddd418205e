package interfere_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model/interfere"
)

func sound() interfere.Observation {
	return interfere.Observation{
		GPUType: gpuType, Mode: interfere.MPS, Speed: 0.8, User: "u",
		Job: interfere.Job{Signature: "a", Util: 0.5, Bandwidth: 0.2}, Others: []interfere.Job{{Signature: "b", Util: 0.5, Bandwidth: interfere.Unknown}},
	}
}

// TestObservationCheck: each kind of poison is refused by name, and a model is
// the same with it and without.
func TestObservationCheck(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name string
		make func(*interfere.Observation)
		want string // in the message; "" for sound
	}{
		{"sound", func(*interfere.Observation) {}, ""},
		{"faster than alone", func(o *interfere.Observation) { o.Speed = 2 }, ""},
		{"unknown utilization", func(o *interfere.Observation) { o.Job.Util = interfere.Unknown }, ""},
		{"speed NaN", func(o *interfere.Observation) { o.Speed = nan }, "speed is NaN"},
		{"speed 0", func(o *interfere.Observation) { o.Speed = 0 }, "speed is 0, must be above 0 and at most 2"},
		{"speed negative", func(o *interfere.Observation) { o.Speed = -1 }, "speed is -1"},
		{"speed above 2", func(o *interfere.Observation) { o.Speed = 2.01 }, "speed is 2.01"},
		{"speed infinite", func(o *interfere.Observation) { o.Speed = inf }, "speed is +Inf"},
		{"mode", func(o *interfere.Observation) { o.Mode = 3 }, "mode 3"},
		{"no type", func(o *interfere.Observation) { o.GPUType = "" }, "GPU type"},
		{"type of dashes", func(o *interfere.Observation) { o.GPUType = " - " }, "GPU type"},
		{"long type", func(o *interfere.Observation) { o.GPUType = strings.Repeat("x", 65) }, "GPU type of 65 bytes"},
		{"type that grows", func(o *interfere.Observation) { o.GPUType = strings.Repeat("ɐ", 32) }, "normal form of 96 bytes"},
		{"alone", func(o *interfere.Observation) { o.Others = nil }, "0 other jobs"},
		{"a crowd", func(o *interfere.Observation) { o.Others = make([]interfere.Job, interfere.MaxSet) }, "8 other jobs"},
		{"utilization NaN", func(o *interfere.Observation) { o.Job.Util = nan }, "utilization is NaN"},
		{"utilization above 1", func(o *interfere.Observation) { o.Job.Util = 1.5 }, "utilization is 1.5"},
		{"bandwidth of another", func(o *interfere.Observation) { o.Others = []interfere.Job{{Bandwidth: inf}} }, "bandwidth is +Inf"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := sound()
			tc.make(&o)
			err := o.Check()
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, interfere.ErrObservation) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			with := interfere.Fit([]interfere.Observation{sound(), o, sound()}).Encode()
			if !bytes.Equal(with, interfere.Fit([]interfere.Observation{sound(), sound()}).Encode()) {
				t.Error("it changes the model")
			}
		})
	}
}

// TestLiar: one user who claims to crawl beside everybody, as often as can be,
// cannot move the predictions of the others by much.
func TestLiar(t *testing.T) {
	w := newWorld(24)
	var seen []interfere.Observation
	add := func(o interfere.Observation) {
		t.Helper()
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, o)
	}
	for v := range w.jobs {
		for o := range w.jobs {
			for _, user := range []string{"ann", "bob", "cyd"} {
				obs := w.observe(v, o)
				obs.User = user
				add(obs)
			}
		}
	}
	honest := interfere.Fit(seen)
	for i := range 5000 {
		o := w.observe(0, i%24)
		o.User, o.Speed = "mallory", 0.02
		o.Job.Signature, o.Job.Family = fmt.Sprintf("lie-%d", i), ""
		add(o)
	}
	lied := interfere.Fit(seen)
	all := func(int, int) bool { return true }
	before, after := w.miss(honest, all), w.miss(lied, all)
	t.Logf("mean error %.3f, with the liar %.3f", before, after)
	if after > before+0.08 {
		t.Errorf("the liar takes the mean error from %.3f to %.3f", before, after)
	}
	for _, a := range lied.AllAdvice() {
		if a.Verdict == interfere.Loses {
			t.Errorf("the liar ends sharing: %v", a)
		}
	}
}

// TestLiarAmongFew: nor where the others have measured little, and whatever family the lies
// are of: before observations counted by their users, 512 lies among 64 took the mean error
// from 0.03 to 0.90.
func TestLiarAmongFew(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"", "f1"} {
		for _, speed := range []float64{0.02, 1.9} {
			w := newWorld(24)
			var obs []interfere.Observation
			for i := range 64 {
				o := w.observe(i/8, i%8)
				o.User = []string{"ann", "bob", "cyd", "dan"}[i%4]
				obs = append(obs, o)
			}
			measured := func(v, o int) bool { return v < 8 && o < 8 }
			before := w.miss(interfere.Fit(obs), measured)
			for i := range 512 {
				o := w.observe(i%24, (i+i/24)%24)
				o.User, o.Speed = "mallory", speed
				o.Job.Signature, o.Job.Family = fmt.Sprint("lie-", i), family
				if family != "" {
					o.Job.Family = w.jobs[i%8].Family
				}
				obs = append(obs, o)
			}
			after := w.miss(interfere.Fit(obs), measured)
			t.Logf("family %q, speed %v: mean error %.3f, with the liar %.3f", family, speed, before, after)
			if after > before+0.08 {
				t.Errorf("family %q, speed %v: the liar takes the mean error from %.3f to %.3f", family, speed, before, after)
			}
		}
	}
}

// TestSiteCountsInFull: what the site measured itself is nobody's word, however much it is.
func TestSiteCountsInFull(t *testing.T) {
	t.Parallel()
	w := newWorld(24)
	fitted := func(user func(i int) string) interfere.Coefficients {
		var obs []interfere.Observation
		for i := range 576 {
			o := w.observe(i/24, i%24)
			if o.User = user(i); i%2 == 1 && o.User == "" {
				o.Speed *= 0.8
			}
			obs = append(obs, o)
		}
		o := w.observe(0, 1)
		return interfere.Fit(obs).Terms(o.GPUType, o.Mode).Coefficients
	}
	users := []string{"ann", "bob", "cyd", "dan", "eve"}
	if all, few := fitted(func(int) string { return "" }), fitted(func(i int) string {
		if i < len(users)*2 && i%2 == 0 {
			return users[i/2]
		}
		return ""
	}); all != few {
		t.Errorf("beside five measurements of users it is %+v, alone %+v", few, all)
	}
}

// TestRepeats: saying it more often than MaxRepeats adds nothing.
func TestRepeats(t *testing.T) {
	var obs []interfere.Observation
	for range 5 * interfere.MaxRepeats {
		obs = append(obs, sound())
	}
	if !bytes.Equal(interfere.Fit(obs).Encode(), interfere.Fit(obs[:interfere.MaxRepeats]).Encode()) {
		t.Error("repeats beyond the bound change the model")
	}
	if bytes.Equal(interfere.Fit(obs).Encode(), interfere.Fit(obs[:interfere.MaxRepeats-1]).Encode()) {
		t.Error("the last repeat within the bound does not count")
	}
}

// TestBounds: models of far more jobs, pairs and types than there is room for
// keep the newest and stay small.
func TestBounds(t *testing.T) {
	var obs []interfere.Observation
	add := func(typ, v, o int) {
		obs = append(obs, interfere.Observation{
			GPUType: fmt.Sprintf("%s-%d", strings.Repeat("LONG", 14), typ), Mode: interfere.Mode(v % 3),
			Job:    interfere.Job{Signature: fmt.Sprint("s", v), Family: fmt.Sprint("f", v), Util: 0.5, Bandwidth: 0.5},
			Others: []interfere.Job{{Signature: fmt.Sprint("s", o), Family: fmt.Sprint("f", o), Util: 0.5, Bandwidth: 0.5}},
			Speed:  0.5,
		})
	}
	for i := range 2 * interfere.MaxObservations {
		add(i%100, i, i+1)
	}
	m := interfere.Fit(obs)
	b := m.Encode()
	t.Logf("%d bytes", len(b))
	if len(b) > interfere.MaxModelBytes {
		t.Errorf("%d bytes, at most %d are allowed", len(b), interfere.MaxModelBytes)
	}
	if _, err := interfere.Decode(b); err != nil {
		t.Error(err)
	}
	knows := func(o *interfere.Observation) bool {
		e := m.Explain(interfere.Set{GPUType: o.GPUType, Mode: o.Mode, Jobs: []interfere.Job{o.Job, o.Others[0]}})
		return e[0].Neighbours[0].Sensitivity != 0
	}
	if !knows(&obs[len(obs)-1]) {
		t.Error("the newest is forgotten")
	}
	if knows(&obs[0]) {
		t.Error("the oldest is still there")
	}
}

// TestMaxBytes: the lists' bounds alone keep every model below the limit.
func TestMaxBytes(t *testing.T) {
	const name = 1 + 64
	list := 2 + 32*(name+3*(5*4+2)) + 2 + 64*(name+1) + 2 + interfere.MaxJobs*22 + 2 + interfere.MaxPairs*11 + 2 + 64*3*16
	if list+10 > interfere.MaxModelBytes {
		t.Errorf("a full model has %d bytes, limit %d", list+10, interfere.MaxModelBytes)
	}
}
