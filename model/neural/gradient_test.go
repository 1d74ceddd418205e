package neural

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// gradientCase is a small network of random parameters and one row.
type gradientCase struct {
	name   string
	change func(*Config)
	want   []float64 // labels; NaN is missing
}

func gradientCases() []gradientCase {
	nan := math.NaN()
	return []gradientCase{
		{"all terms", func(*Config) {}, []float64{3, 250, 40}},
		{"a missing label", func(*Config) {}, []float64{3, nan, 40}},
		{"no label", func(*Config) {}, []float64{nan, nan, nan}},
		{"squared error alone", func(c *Config) { c.MAPEWeight, c.KLWeight, c.ReconWeight = 0, 0, 0 }, []float64{3, 250, 40}},
		{"relative error alone", func(c *Config) { c.MSEWeight, c.KLWeight, c.ReconWeight = 0, 0, 0 }, []float64{3, 250, 40}},
		{"relative error far beyond its cap", func(c *Config) { c.MSEWeight, c.MAPECap = 0, 0.01 }, []float64{3, 250, 40}},
		{"a label under the floor", func(c *Config) { c.MAPEFloor = 1 }, []float64{0.001, 10, 0.5}},
		{"divergence alone", func(c *Config) { c.ReconWeight, c.KLWeight = 0, 3 }, []float64{nan, nan, nan}},
		{"reconstruction alone", func(c *Config) { c.ReconWeight, c.KLWeight = 3, 0 }, []float64{nan, nan, nan}},
		{"three layers of odd widths", func(c *Config) { c.Hidden = []int{7, 5, 6} }, []float64{3, 250, 40}},
		{"one layer", func(c *Config) { c.Hidden = []int{9} }, []float64{3, 250, 40}},
	}
}

// gradientCore has scales as of some training rows, one output on a logarithmic
// scale, weights that differ.
func gradientCore(change func(*Config)) core {
	cfg := DefaultConfig()
	cfg.Hidden, cfg.Latent, cfg.KLWeight, cfg.ReconWeight = []int{8, 6}, 3, 0.3, 0.7
	cfg.Outputs = []Scale{ScaleStandard, ScaleLog, ScaleStandard}
	change(&cfg)
	c := core{cfg: cfg, cols: make([]column, 5)}
	c.targets = []target{
		{mean: 2, scale: 1.5, floor: 0.1, weight: 1},
		{kind: ScaleLog, mean: 5, scale: 0.8, floor: 1, weight: 2.5},
		{mean: 50, scale: 20, floor: 1, weight: 1.25},
	}
	return c
}

// numeric is the central difference of loss by parameter i.
func numeric(params []float64, i int, loss func() float64) float64 {
	const h = 1e-5
	keep := params[i]
	params[i] = keep + h
	up := loss()
	params[i] = keep - h
	down := loss()
	params[i] = keep
	return (up - down) / (2 * h)
}

// compareGradients checks every parameter, and that each layer has some
// gradient where touched says so.
func compareGradients(t *testing.T, net network, params []float64, layers map[string]stack, touched func(string) bool, c *core, labels []float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 0))
	for i := range params {
		params[i] = gauss(r) * 0.5
	}
	x := make([]float64, len(c.cols))
	for i := range x {
		x[i] = gauss(r)
	}
	want := make([]float64, len(labels))
	for k, y := range labels {
		want[k] = math.NaN()
		if !math.IsNaN(y) {
			want[k] = c.targets[k].scaled(y)
		}
	}
	g := make([]float64, len(params))
	scratch := make([]float64, len(params))
	loss := func() float64 { return net.gradient(scratch, x, want, labels, rand.New(rand.NewPCG(5, 5))) }
	net.gradient(g, x, want, labels, rand.New(rand.NewPCG(5, 5)))
	seen := 0
	for name, s := range layers {
		for li, l := range s {
			size := 0.0
			for i := l.w; i < l.b+l.out; i++ {
				seen++
				n := numeric(params, i, loss)
				size += math.Abs(n)
				if diff := math.Abs(n - g[i]); !(diff <= 1e-6+1e-5*math.Abs(n)) {
					t.Errorf("%s layer %d, parameter %d: gradient %v, finite difference %v", name, li, i-l.w, g[i], n)
				}
			}
			if (size > 0) != touched(name) {
				t.Errorf("%s layer %d: sum of gradients %v, expected some: %v", name, li, size, touched(name))
			}
		}
	}
	if seen != len(params) {
		t.Errorf("checked %d parameters of %d", seen, len(params))
	}
}

func labelled(labels []float64) bool {
	for _, y := range labels {
		if !math.IsNaN(y) {
			return true
		}
	}
	return false
}

func TestGradientMLP(t *testing.T) {
	t.Parallel()
	for _, tc := range gradientCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := &MLP{core: gradientCore(tc.change)}
			m.layOut()
			touched := func(string) bool { return labelled(tc.want) }
			compareGradients(t, m.trainer(), m.params, map[string]stack{"net": m.net}, touched, &m.core, tc.want)
		})
	}
}

func TestGradientVAE(t *testing.T) {
	t.Parallel()
	for _, tc := range gradientCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := &VAE{core: gradientCore(tc.change)}
			v.layOut()
			touched := func(name string) bool {
				switch name {
				case "head":
					return labelled(tc.want)
				case "decoder":
					return v.cfg.ReconWeight > 0
				}
				return labelled(tc.want) || v.cfg.ReconWeight > 0 || v.cfg.KLWeight > 0
			}
			compareGradients(t, v.trainer(), v.params, map[string]stack{"encoder": v.enc, "head": v.head, "decoder": v.dec}, touched, &v.core, tc.want)
		})
	}
}

// TestVAELossByHand writes the terms out from the textbook: with the weights of
// the labels at 0, what is left is reconstruction and divergence.
func TestVAELossByHand(t *testing.T) {
	t.Parallel()
	v := &VAE{core: gradientCore(func(*Config) {})}
	v.layOut()
	r := rand.New(rand.NewPCG(3, 0))
	for i := range v.params {
		v.params[i] = gauss(r) * 0.4
	}
	x := []float64{0.3, -1, 2, 0.1, -0.4}
	nan := math.NaN()
	tr := v.trainer()
	got := tr.gradient(make([]float64, len(v.params)), x, []float64{nan, nan, nan}, []float64{nan, nan, nan}, rand.New(rand.NewPCG(8, 8)))

	moments, n := make([]float64, 2*v.cfg.Latent), v.cfg.Latent
	v.enc.infer(v.params, x, moments)
	noise, code, kl := rand.New(rand.NewPCG(8, 8)), make([]float64, n), 0.0
	for i := range code {
		mu, lv := moments[i], moments[n+i]
		code[i] = mu + math.Exp(lv/2)*gauss(noise)
		kl += 0.5 * (mu*mu + math.Exp(lv) - 1 - lv)
	}
	back, recon := make([]float64, len(x)), 0.0
	v.dec.infer(v.params, code, back)
	for i := range x {
		recon += (back[i] - x[i]) * (back[i] - x[i]) / float64(len(x))
	}
	if want := 0.3*kl + 0.7*recon; math.Abs(got-want) > 1e-12*want || kl <= 0 {
		t.Fatalf("loss %v, must be 0.3 × %v + 0.7 × %v = %v", got, kl, recon, want)
	}
}

// TestLogvarClamp: beyond the limit the deviation stays, and so does the loss.
func TestLogvarClamp(t *testing.T) {
	t.Parallel()
	for _, logvar := range []float64{-1e5, 1e5} {
		t.Run(fmt.Sprint(logvar), func(t *testing.T) {
			v := &VAE{core: gradientCore(func(*Config) {})}
			v.layOut()
			last := v.enc[len(v.enc)-1]
			for i := range v.cfg.Latent {
				v.params[last.b+v.cfg.Latent+i] = logvar
			}
			nan, g := math.NaN(), make([]float64, len(v.params))
			l := v.trainer().gradient(g, make([]float64, 5), []float64{nan, nan, nan}, []float64{nan, nan, nan}, rand.New(rand.NewPCG(1, 1)))
			if math.IsNaN(l) || math.IsInf(l, 0) {
				t.Fatalf("loss %v", l)
			}
			for i := range v.cfg.Latent {
				if d := g[last.b+v.cfg.Latent+i]; d != 0 {
					t.Errorf("gradient %v by a log variance of %v, must be 0", d, logvar)
				}
			}
		})
	}
}

// TestInferIsForward: the pass without a trace gives the same bits.
func TestInferIsForward(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 0))
	for _, widths := range [][]int{{3, 1}, {1, 5, 2}, {256, 128, 127, 3, 256}, {7, 6, 9, 4}} {
		s, n := newStack(0, widths...)
		p, x, y := make([]float64, n), make([]float64, widths[0]), make([]float64, widths[len(widths)-1])
		s.init(p, r)
		for i := range x {
			x[i] = gauss(r)
		}
		tr := s.newTrace()
		s.forward(p, x, tr)
		s.infer(p, x, y)
		for i := range y {
			if y[i] != tr.out()[i] {
				t.Fatalf("widths %v: unit %d is %v by infer, %v by forward", widths, i, y[i], tr.out()[i])
			}
		}
	}
}
