package neural

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// small trains a model of few bytes.
func small(t testing.TB, vae bool) Regressor {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Epochs, cfg.Hidden, cfg.Latent, cfg.Outputs = 3, []int{3, 2}, 1, []Scale{ScaleLog}
	x, y := friedman(1, 40, 5)
	a := architectures[0]
	if vae {
		a = architectures[1]
	}
	m, err := a.train(x, y, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCodecRoundTrip(t *testing.T) {
	t.Parallel()
	for _, vae := range []bool{false, true} {
		m := small(t, vae)
		b := m.Encode()
		got, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Encode()) != string(b) {
			t.Error("decoding and encoding changed the bytes")
		}
		want, c := coreOf(m), coreOf(got)
		want.cfg.Inputs = make([]Scale, 5) // spelled out by the encoding
		if d := cmp.Diff(want, c, cmp.AllowUnexported(core{}, column{}, target{}, adam{})); d != "" {
			t.Error(d)
		}
		x, _ := friedman(2, 50, 5)
		var p, q [1]float64
		for _, row := range x {
			if err := errors.Join(m.Predict(row, p[:]), got.Predict(row, q[:])); err != nil || p != q {
				t.Fatalf("%v before, %v after: %v", p, q, err)
			}
		}
	}
}

// TestLargestModelFits: what Config allows, MaxBytes allows.
func TestLargestModelFits(t *testing.T) {
	t.Parallel()
	x, y := friedman(1, 2, MaxInputs)
	for i := range y {
		y[i] = make([]float64, MaxOutputs)
	}
	cfg := DefaultConfig()
	cfg.Epochs, cfg.Hidden, cfg.Latent = 1, []int{MaxWidth, MaxWidth, MaxWidth}, MaxLatent
	for _, a := range architectures {
		m, err := a.train(x, y, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(m.Encode()); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}

// reseal puts the right checksum behind changed bytes.
func reseal(b []byte) []byte {
	body := b[:len(b)-4]
	return binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// noLayer is a model whose configuration has no hidden layer, all else right.
func noLayer() []byte {
	m := &MLP{core: core{cfg: DefaultConfig(), cols: make([]column, 1)}}
	m.cfg.Hidden = nil
	m.targets = []target{{scale: 1, floor: 1, weight: 1}}
	m.layOut()
	return m.Encode()
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	bytesOf := func(change func(b []byte)) []byte {
		b := small(t, false).Encode()
		change(b)
		return b
	}
	model := func(change func(*core)) []byte {
		m := small(t, true)
		change(coreOf(m))
		return m.Encode()
	}
	for _, tc := range []struct {
		name, want string
		b          []byte
	}{
		{"nothing", "must begin with", nil},
		{"too long", "at most", make([]byte, MaxBytes+1)},
		{"another file", "must begin with", []byte(strings.Repeat("x", 300))},
		{"another version", "version 9", reseal(bytesOf(func(b []byte) { b[4] = 9 }))},
		{"a flipped bit", "checksum", bytesOf(func(b []byte) { b[90] ^= 1 })},
		{"cut short", "checksum", bytesOf(func([]byte) {})[:200]},
		{"cut short and resealed", "early", reseal(bytesOf(func([]byte) {})[:100])},
		{"another kind", "kind 7", reseal(bytesOf(func(b []byte) { b[6] = 7 }))},
		{"an MLP said to be a VAE", "bytes of parameters", reseal(bytesOf(func(b []byte) { b[6] = kindVAE }))},
		{"four hidden layers", "4 hidden layers", reseal(bytesOf(func(b []byte) { b[7] = 4 }))},
		{"no hidden layer", "0 hidden layers, must be", noLayer()},
		{"inputs beyond all bounds", "65535 inputs", reseal(bytesOf(func(b []byte) { b[8], b[9] = 255, 255 }))},
		{"no outputs", "0 outputs", reseal(bytesOf(func(b []byte) { b[10] = 0 }))},
		{"one byte more", "bytes of parameters", reseal(append(small(t, false).Encode(), 0))},
		{"wide layer", "layer 0 has 129", model(func(c *core) { c.cfg.Hidden = []int{129, 2} })},
		{"NaN in the configuration", "learning rate is NaN", model(func(c *core) { c.cfg.LearningRate = math.NaN() })},
		{"NaN parameter", "parameter is NaN", model(func(c *core) { c.params[3] = math.NaN() })},
		{"infinite parameter", "parameter is +Inf", model(func(c *core) { c.params[3] = math.Inf(1) })},
		{"huge parameter", "parameter is 1e+07", model(func(c *core) { c.params[3] = 1e7 })},
		{"NaN first moment", "first moment is NaN", model(func(c *core) { c.opt.m[0] = math.NaN() })},
		{"negative second moment", "second moment is -1", model(func(c *core) { c.opt.v[0] = -1 })},
		{"power above 1", "second power is 1.5", model(func(c *core) { c.opt.pow2 = 1.5 })},
		{"NaN input mean", "input mean is NaN", model(func(c *core) { c.cols[1].mean = math.NaN() })},
		{"negative input scale", "input scale is -1", model(func(c *core) { c.cols[1].scale = -1 })},
		{"unknown input scale", "scale of input 1 is 3", model(func(c *core) { c.cols[1].kind = 3 })},
		{"zero label scale", "label scale is 0", model(func(c *core) { c.targets[0].scale = 0 })},
		{"zero floor", "label floor is 0", model(func(c *core) { c.targets[0].floor = 0 })},
		{"no weight", "label weight is 0", model(func(c *core) { c.targets[0].weight = 0 })},
		{"a logarithm of nothing", "smallest label is 0", model(func(c *core) { c.targets[0].lo = 0 })},
		{"range upside down", "largest label", model(func(c *core) { c.targets[0].hi = c.targets[0].lo / 2 })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Decode(tc.b)
			if m != nil || !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("model %v, error %v, want none and one with %q", m, err, tc.want)
			}
		})
	}
}

// FuzzDecode: whatever is accepted encodes to the same bytes, predicts finite
// numbers and survives an update.
func FuzzDecode(f *testing.F) {
	for _, vae := range []bool{false, true} {
		b := small(f, vae).Encode()
		f.Add(b)
		f.Add(b[:len(b)-4])
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Most mutations break the checksum, which would hide what lies behind.
		for _, b := range [][]byte{b, binary.LittleEndian.AppendUint32(b[:len(b):len(b)], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))} {
			m, err := Decode(b)
			if err != nil {
				if !errors.Is(err, ErrModel) {
					t.Fatalf("error %v does not wrap ErrModel", err)
				}
				continue
			}
			if string(m.Encode()) != string(b) {
				t.Fatal("accepted what Encode would not have written")
			}
			c := coreOf(m)
			x, out, y := make([]float64, len(c.cols)), make([]float64, len(c.targets)), make([]float64, len(c.targets))
			for i := range x {
				x[i] = float64(i) - 1.5e18*float64(i%2)
				x[i] = max(-MaxValue, min(MaxValue, x[i]))
			}
			for k := range y {
				y[k] = 1 + float64(k)
			}
			requireFinite(t, m, x, out)
			c.cfg.UpdateSteps = min(c.cfg.UpdateSteps, 3)
			if err := m.Update([][]float64{x}, [][]float64{y}); err != nil && !errors.Is(err, ErrDiverged) {
				t.Fatal(err)
			}
			requireFinite(t, m, x, out)
		}
	})
}

func requireFinite(t *testing.T, m Regressor, x, out []float64) {
	t.Helper()
	if err := m.Predict(x, out); err != nil {
		t.Fatal(err)
	}
	for k, v := range out {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("output %d is %v", k, v)
		}
	}
}
