package neural

import (
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"
)

// golden is the CRC-32C of the encoded models of TestGolden. It changes only
// with the arithmetic, the order of its steps, or the format.
var golden = map[string]uint32{"mlp": 0xda423279, "vae": 0xa1f0f65b}

// TestGolden trains, updates and predicts, and compares the bytes with those of
// every other processor. Run with GOAMD64=v3 it also shows that nothing depends
// on fused products, which the compiler may use there as it does on arm64.
func TestGolden(t *testing.T) {
	t.Parallel()
	// Rows without math functions, which differ between processors.
	r := rand.New(rand.NewPCG(9, 9))
	var x, y [][]float64
	for range 200 {
		v := []float64{r.Float64(), float64(1e9 * r.Float64()), float64(r.Uint64() % 5), 3}
		x = append(x, v)
		row := []float64{float64(v[0]*v[2]) - 1, v[1] + 1, math.NaN()}
		if v[2] > 0 {
			row[2] = v[2] / (v[0] + 1)
		}
		y = append(y, row)
	}
	cfg := DefaultConfig()
	cfg.Epochs, cfg.Hidden = 12, []int{16, 9}
	cfg.Inputs, cfg.Outputs = []Scale{0, ScaleLog, 0, 0}, []Scale{0, ScaleLog, 0}
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			b := train(t, a.train, x, y, cfg)
			if got := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)); got != golden[a.name] {
				t.Errorf("checksum %#08x, must be %#08x: the arithmetic has changed", got, golden[a.name])
			}
			if string(b) != string(train(t, a.train, x, y, cfg)) {
				t.Error("the same seed gave other bytes")
			}
			cfg := cfg
			cfg.Seed++
			if string(b) == string(train(t, a.train, x, y, cfg)) {
				t.Error("another seed gave the same bytes")
			}
		})
	}
}

// train returns the bytes of a model trained on x and y, updated with the first
// rows, and those of a few predictions.
func train(t *testing.T, f func(x, y [][]float64, cfg Config) (Regressor, error), x, y [][]float64, cfg Config) []byte {
	t.Helper()
	m, err := f(x, y, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := m.Update(x[i:i+2], y[i:i+2]); err != nil {
			t.Fatal(err)
		}
	}
	b := m.Encode()
	out := make([]float64, len(y[0]))
	for _, row := range x[:20] {
		if err := m.Predict(row, out); err != nil {
			t.Fatal(err)
		}
		for _, v := range out {
			for bits := math.Float64bits(v); bits != 0; bits >>= 8 {
				b = append(b, byte(bits))
			}
		}
	}
	return b
}

func TestElementary(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		x := (r.Float64() - 0.5) * 2 * expLimit
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 2e-15*want*max(1, math.Abs(x)/20) {
			t.Fatalf("exp(%v) = %v, must be %v", x, got, want)
		}
		v := math.Exp(x)
		if got, want := log(v), math.Log(v); math.Abs(got-want) > 4e-16*math.Abs(want)+1e-16 {
			t.Fatalf("log(%v) = %v, must be %v", v, got, want)
		}
	}
	for _, tc := range []struct{ got, want float64 }{
		{exp(0), 1}, {log(1), 0}, {exp(-1e9), exp(-expLimit)}, {exp(1e9), exp(expLimit)}, {log(math.MaxFloat64), math.Log(math.MaxFloat64)},
		{log(0.5), -math.Ln2}, {log(minLogged), math.Log(minLogged)},
	} {
		if tc.got != tc.want {
			t.Errorf("%v, must be %v", tc.got, tc.want)
		}
	}
	var sum, squares, fourth float64
	const n = 200_000
	for range n {
		g := gauss(r)
		sum, squares, fourth = sum+g, squares+g*g, fourth+g*g*g*g
	}
	if math.Abs(sum/n) > 0.01 || math.Abs(squares/n-1) > 0.02 || math.Abs(fourth/n-3) > 0.15 {
		t.Errorf("gauss has mean %v, variance %v and fourth moment %v, must be 0, 1 and 3", sum/n, squares/n, fourth/n)
	}
}
