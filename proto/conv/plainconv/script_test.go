package plainconv

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestScriptRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "script")
		packed, err := PackScript(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := UnpackScript(packed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Error(cmp.Diff(want, got))
		}
	})
}

func TestScriptBounds(t *testing.T) {
	t.Parallel()
	random := make([]byte, cluster.MaxPackedScript+1)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	for name, c := range map[string]struct {
		script []byte
		want   string
	}{
		"largest":         {bytes.Repeat([]byte("echo a\n"), cluster.MaxScript/7), ""},
		"too large":       {make([]byte, cluster.MaxScript+1), "at most 4194304 are allowed"},
		"does not pack":   {random, "when packed, at most 524288"},
		"empty":           {nil, ""},
		"one line":        {[]byte("#!/bin/sh\n"), ""},
		"other than text": {[]byte("#!/bin/sh\n\x00\xff"), ""},
	} {
		packed, err := PackScript(c.script)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil {
			if got, err := UnpackScript(packed); err != nil || !bytes.Equal(got, c.script) {
				t.Errorf("%s: %d bytes came back as %d, %v", name, len(c.script), len(got), err)
			}
		}
	}
}

func FuzzUnpackScript(f *testing.F) {
	packed, err := PackScript([]byte("#!/bin/sh\necho hello\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Add(packed[:len(packed)-4])
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if script, err := UnpackScript(data); err == nil && len(script) > cluster.MaxScript {
			t.Errorf("%d bytes", len(script))
		}
	})
}
