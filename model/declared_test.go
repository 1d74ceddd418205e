package model

import "testing"

// TestDeclaredMemoryAlone: who says how much memory a job takes, and not how busy it
// keeps the card, has the same part of it; what was measured, and what was said, count
// for more, and of a job of which nothing was said nobody knows.
func TestDeclaredMemoryAlone(t *testing.T) {
	t.Parallel()
	measured := []Sample{{Signature: "measured", GPUType: "T4", PeakMiB: 3000, UtilMilli: 50, Seconds: 10, Seq: 1}}
	p, err := NewPredictor(DefaultWeights(), NewHistory(measured))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, signature string
		said            Declared
		want            int64
	}{
		{"a quarter of the memory", "new", Declared{GPUMemMiB: 4000}, 250},
		{"all of it", "new", Declared{GPUMemMiB: 16_000}, 1000},
		{"more than there is", "new", Declared{GPUMemMiB: 40_000}, 1000},
		{"and the use", "new", Declared{GPUMemMiB: 4000, UtilMilli: 700}, 700},
		{"measured", "measured", Declared{GPUMemMiB: 4000}, 50},
		{"nothing", "new", Declared{}, 1000},
	} {
		q := p.Predict(Request{Signature: tc.signature, Declared: tc.said, Types: []TypeInfo{{Name: "T4", MemMiB: 16_000}}})
		if got := q[0].UtilMilli; got != tc.want {
			t.Errorf("%s: %d thousandths, want %d", tc.name, got, tc.want)
		}
	}
}
