package model

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestLearnedWeightsRoundTrip: one encoding, and what comes back is the same.
func TestLearnedWeightsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWeights(t)
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		b := w.Encode()
		if len(b) > MaxWeightBytes {
			t.Fatalf("%d bytes", len(b))
		}
		got, err := DecodeWeights(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Encode(), b) || got.Checksum() != w.Checksum() {
			t.Fatal("decoding and encoding changed the bytes")
		}
		if got.TrainedSeq != w.TrainedSeq {
			t.Fatalf("trained up to %d, was %d", got.TrainedSeq, w.TrainedSeq)
		}
	})
}

// TestDamageIsRefused: each cut, each flipped bit and each byte too many.
func TestDamageIsRefused(t *testing.T) {
	t.Parallel()
	w := learnedOf(func(l *Learned) { l.Forest, l.Trees = l.Forest.First(1), [3]int{1, 1, 1} })
	good := w.Encode()
	refused := func(what string, at int, b []byte) {
		if _, err := DecodeWeights(b); !errors.Is(err, ErrWeights) {
			t.Errorf("%s %d of %d bytes: error %v, must be ErrWeights", what, at, len(good), err)
		}
	}
	for n := range good {
		refused("cut to", n, good[:n])
		for bit := range 8 {
			b := bytes.Clone(good)
			b[n] ^= 1 << bit
			refused("a flipped bit at", n, b)
		}
	}
	refused("a byte behind", len(good), append(bytes.Clone(good), 0))
}

// TestResealedDamage: with the right checksum behind them, changed bytes are
// refused or mean weights that Check takes and that predict.
func TestResealedDamage(t *testing.T) {
	t.Parallel()
	whole := learnedOf(func(l *Learned) { l.Forest, l.Trees = l.Forest.First(1), [3]int{1, 1, 1} })
	good := whole.Encode()
	r := rand.New(rand.NewPCG(5, 6))
	f := features(t, "resnet50", training64)
	try := func(b []byte) {
		w, err := DecodeWeights(reseal(b))
		if err != nil {
			if !errors.Is(err, ErrWeights) {
				t.Fatalf("error %v does not wrap ErrWeights", err)
			}
			return
		}
		if !bytes.Equal(w.Encode(), b) {
			t.Fatal("two encodings of the same weights")
		}
		p, err := NewPredictor(w, nil)
		if err != nil {
			t.Fatal(err)
		}
		q := p.Predict(Request{Features: f, Types: []TypeInfo{{Name: "T4"}}})[0]
		if q.GPUMemMiB < 1 || q.GPUMemP95MiB < q.GPUMemMiB || q.GPUMemP95MiB > 15360 || !(q.StepSeconds >= 0) {
			t.Fatalf("%+v", q)
		}
	}
	for n := 12; n < len(good); n++ {
		try(bytes.Clone(good[:n]))
		b := bytes.Clone(good)
		b[n] ^= 1 << r.IntN(8)
		try(b)
		b[n] = byte(r.Uint32())
		b[r.IntN(len(b)-12)+8] = 0xff
		try(b)
	}
}

func FuzzDecodeLearned(f *testing.F) {
	w := learnedOf(func(l *Learned) { l.Forest, l.Trees = l.Forest.First(2), [3]int{2, 1, 0} })
	f.Add(w.Encode())
	w = learnedOf(func(l *Learned) { l.Forest, l.Trees = nil, [3]int{} })
	f.Add(w.Encode())
	w = DefaultWeights()
	f.Add(w.Encode())
	x := features(f, "resnet50", training64)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		b = reseal(bytes.Clone(b)) // or the checksum would stop them all
		w, err := DecodeWeights(b)
		if err != nil {
			if !errors.Is(err, ErrWeights) {
				t.Fatalf("error %v does not wrap ErrWeights", err)
			}
			return
		}
		if !bytes.Equal(w.Encode(), b) {
			t.Fatal("two encodings of the same weights")
		}
		p, err := NewPredictor(w, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range p.Predict(Request{Features: x, Types: []TypeInfo{{Name: "T4"}, {Name: "Future X", MemMiB: 1}}}) {
			if q.GPUMemMiB < 1 || q.GPUMemP95MiB < q.GPUMemMiB || q.UtilMilli < 1 || q.UtilMilli > 1000 || !(q.Seconds >= 0) || !(q.StepSeconds >= 0) {
				t.Fatalf("%+v", q)
			}
		}
	})
}
