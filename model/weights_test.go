package model

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWeightsRoundTrip(t *testing.T) {
	t.Parallel()
	w := CoreWeights()
	got, err := DecodeWeights(w.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w, got); d != "" {
		t.Fatal(d)
	}
}

// reseal puts the right checksum behind changed bytes.
func reseal(b []byte) []byte {
	body := b[:len(b)-4]
	return binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

func TestDecodeWeightsRefuses(t *testing.T) {
	t.Parallel()
	encode := func(change func(*Weights)) []byte {
		w := CoreWeights()
		change(&w)
		return w.Encode()
	}
	bytesOf := func(change func([]byte)) []byte {
		w := CoreWeights()
		b := w.Encode()
		change(b)
		return b
	}
	for _, tc := range []struct {
		name, want string
		b          []byte
	}{
		{"empty", "must begin with", nil},
		{"too long", "at most 262144", make([]byte, MaxWeightBytes+1)},
		{"another file", "must begin with", []byte(strings.Repeat("x", 300))},
		{"another version", "version 9", reseal(bytesOf(func(b []byte) { b[4] = 9 }))},
		{"an older version", "version 1, this program reads", reseal(bytesOf(func(b []byte) { b[4] = 1 }))},
		{"another count", "coefficients", reseal(bytesOf(func(b []byte) { b[6]++ }))},
		{"cut short", "coefficients", reseal(bytesOf(func([]byte) {})[:100])},
		{"cut behind the coefficients", "cut short", reseal(bytesOf(func([]byte) {})[:320])},
		{"a flipped bit", "checksum", bytesOf(func(b []byte) { b[30] ^= 1 })},
		{"NaN", "saved_factor is NaN", encode(func(w *Weights) { w.SavedFactor = math.NaN() })},
		{"infinity", "library_mib is +Inf", encode(func(w *Weights) { w.LibraryMiB = math.Inf(1) })},
		{"negative", "overlap is -1", encode(func(w *Weights) { w.Overlap = -1 })},
		{"a margin below 1", "graph_margin is 0.9", encode(func(w *Weights) { w.GraphMargin = 0.9 })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodeWeights(tc.b)
			if !errors.Is(err, ErrWeights) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	if _, err := NewPredictor(Weights{}, nil); !errors.Is(err, ErrWeights) {
		t.Fatalf("NewPredictor with zero weights: error %v", err)
	}
}

func FuzzDecodeWeights(f *testing.F) {
	w := CoreWeights()
	f.Add(w.Encode())
	f.Add([]byte(weightsMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := DecodeWeights(b)
		if err == nil {
			err = w.Check()
		} else if !errors.Is(err, ErrWeights) {
			t.Fatalf("error %v does not wrap ErrWeights", err)
		} else {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
