package fit

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGolden compares what is fitted to fixed data with the bytes of every
// other processor: run it with GOARCH=arm64, and with GOAMD64=v3, to see that
// nothing depends on fused products. The checksums change with the arithmetic
// or the order of its steps, and only with these.
func TestGolden(t *testing.T) {
	t.Parallel()
	// Rows without math functions, which differ between processors.
	r := rand.New(rand.NewPCG(21, 22))
	var rows [][]float64
	var y, weights []float64
	for range 500 {
		x := []float64{r.Float64(), 1e6 * r.Float64(), float64(r.IntN(7)), r.Float64() / 3}
		rows = append(rows, x)
		y = append(y, float64(3*x[0])+float64(x[1]*2e-6)+float64(x[2]*x[3])+float64(0.1*r.Float64()))
		weights = append(weights, 0.2+r.Float64())
	}
	for _, tc := range []struct {
		name  string
		bytes func() []byte
		want  uint32
	}{
		{"absolute", func() []byte { return boost(t, rows, y, nil, Options{}).Append(nil) }, 0xf0a9b7c5},
		{"squared", func() []byte { return boost(t, rows, y, nil, Options{Loss: Squared}).Append(nil) }, 0x9895e45b},
		{"absolute by weight", func() []byte { return boost(t, rows, y, weights, Options{}).Append(nil) }, 0x797fb533},
		{"squared by weight", func() []byte { return boost(t, rows, y, weights, Options{Loss: Squared}).Append(nil) }, 0xb34c4cc6},
		{"bounded", func() (b []byte) {
			c, err := Bounded(rows, y, []float64{1, 1e-6, 0.1, 0}, boxes(4, Box{0, 2.5}), 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range append(c, Quantile(slices.Clone(y), 0.95), Conformal(y, nil, 0.95), Log(y[0])) {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
			}
			return b
		}, 0x12e236be},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := crc32.ChecksumIEEE(tc.bytes()); got != tc.want {
				t.Errorf("checksum %#08x, must be %#08x: the arithmetic has changed", got, tc.want)
			}
		})
	}
}
