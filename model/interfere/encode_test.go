package interfere_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/model/interfere"
)

var _ = draws.Fixed()

// TestRoundTrip: a decoded model predicts, explains and advises exactly like the
// original and encodes to the same bytes.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := interfere.Fit(rapid.SliceOfN(genObservation(), 0, 40).Draw(t, "observations"))
		b := m.Encode()
		back, err := interfere.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back.Encode(), b) {
			t.Fatal("a decoded model encodes to other bytes")
		}
		s := interfere.Set{GPUType: gpuType, Mode: genMode().Draw(t, "mode"), Jobs: genJobs(1, 4).Draw(t, "jobs")}
		if d := cmp.Diff(m.Explain(s), back.Explain(s)); d != "" {
			t.Fatalf("explanations differ (-original +decoded):\n%s", d)
		}
		if d := cmp.Diff(m.AllAdvice(), back.AllAdvice()); d != "" {
			t.Fatalf("advice differs (-original +decoded):\n%s", d)
		}
	})
}

func TestEmpty(t *testing.T) {
	var none *interfere.Model
	m, err := interfere.Decode(none.Encode())
	if err != nil {
		t.Fatal(err)
	}
	s := interfere.Set{GPUType: "K80", Jobs: []interfere.Job{{Util: 1}, {Util: 0.5}}}
	want := interfere.DefaultCoefficients(s.Mode)
	for name, got := range map[string][]float64{
		"nil": none.Speeds(s, nil), "zero": new(interfere.Model).Speeds(s, nil), "decoded": m.Speeds(s, nil),
	} {
		if d := cmp.Diff(want.Speeds(s.Jobs, nil), got); d != "" {
			t.Errorf("%s model is not the prior (-want +got):\n%s", name, d)
		}
	}
	if e := none.Explain(s); len(e) != 2 {
		t.Errorf("explanation of a nil model: %+v", e)
	}
	if none.AllAdvice() != nil || none.Advice("K80", interfere.MPS).Pairs != 0 {
		t.Error("a nil model gives advice")
	}
}

// seal puts a right checksum behind b.
func seal(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func small() []byte {
	o := sound()
	p := o
	p.Job, p.Others = o.Others[0], []interfere.Job{o.Job}
	return interfere.Fit([]interfere.Observation{o, p}).Encode()
}

func TestDecodeRefuses(t *testing.T) {
	good := small()
	body := good[:len(good)-4]
	// Offsets of the parts of small(): head, one class called Ampere, one type.
	const class = 6 + 2
	const coefs = class + 1 + len("Ampere")
	const types = coefs + 3*(5*4+2)
	const jobs = types + 2 + 1 + len(gpuType) + 1
	const pairs = jobs + 2 + 2*22
	const advice = pairs + 2 + 2*11
	patch := func(at int, with ...byte) []byte {
		b := bytes.Clone(body)
		copy(b[at:], with)
		return seal(b)
	}
	float := func(at int, v float32) []byte {
		return patch(at, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))...)
	}
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "not an interference model"},
		{"another file", []byte("BWGT567890"), "not an interference model"},
		{"too long", make([]byte, interfere.MaxModelBytes+1), "at most 65536"},
		{"another version", patch(4, 2), "version 2, this program reads version 1"},
		{"damage", append(bytes.Clone(good[:20]), append([]byte{^good[20]}, good[21:]...)...), "damaged"},
		{"cut", seal(body[:len(body)-1]), "cut short"},
		{"a byte more", seal(append(bytes.Clone(body), 0)), "1 bytes too many"},
		{"too many classes", patch(6, 33), "33 classes, at most 32"},
		{"nameless class", patch(class, 0), "name of a class has 0 bytes"},
		{"coefficient NaN", float(coefs+22, nan), "switch is NaN"},
		{"coefficient negative", float(coefs+26, -1), "compute is -1"},
		{"coefficient too big", float(coefs+30, 9), "memory is 9, must be 0 to 8"},
		{"minus zero", float(coefs+34, float32(math.Copysign(0, -1))), "bandwidth is -0"},
		{"class of a type", patch(jobs-1, 1), "class 1, must be below 1"},
		{"type in a wrong class", patch(types+3, 'B'), `in class "Ampere"`},
		{"nameless job", patch(jobs+2, make([]byte, 8)...), "nameless"},
		{"job twice", patch(jobs+2+22, body[jobs+2:jobs+2+22]...), "twice"},
		{"job's class", patch(jobs+2+8, 1), "class 1"},
		{"job's mode", patch(jobs+2+9, 3), "mode 3"},
		{"sensitivity NaN", float(jobs+2+10, nan), "sensitivity is NaN"},
		{"aggression too big", float(jobs+2+14, 1.7), "aggression is 1.7"},
		{"pair of a missing job", patch(pairs+2, 2), "pair of jobs 2 and"},
		{"pair twice", patch(pairs+2+11, body[pairs+2:pairs+2+11]...), "twice"},
		{"pair's type", patch(pairs+2+4, 1), "type 1"},
		{"history NaN", float(pairs+2+5, nan), "history is NaN"},
		{"advice on a missing type", patch(advice+2, 1), "type 1"},
		{"advice without pairs", patch(advice+4, 0), "0 of 0 pairs"},
		{"advice with more losses than pairs", patch(advice+6, 2), "2 of 1 pairs"},
		{"advice NaN", float(advice+10, nan), "sum of speeds is NaN"},
		{"advice with a negative error", float(advice+14, -1), "standard error is -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := interfere.Decode(tc.b)
			if m != nil || !errors.Is(err, interfere.ErrModel) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	if _, err := interfere.Decode(good); err != nil {
		t.Errorf("the sound one: %v", err)
	}
}

// FuzzDecode: nothing panics, and what is accepted encodes to the same bytes and
// predicts speeds.
func FuzzDecode(f *testing.F) {
	good := small()
	f.Add(good[:len(good)-4])
	f.Add((*interfere.Model)(nil).Encode()[:16])
	f.Add(good[:40])
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is put right, or hardly anything would get past it.
		b := seal(body)
		m, err := interfere.Decode(b)
		if err != nil {
			if !errors.Is(err, interfere.ErrModel) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if !bytes.Equal(m.Encode(), b) {
			t.Fatal("encodes to other bytes")
		}
		s := interfere.Set{GPUType: gpuType, Mode: interfere.MPS, Jobs: []interfere.Job{sound().Job, sound().Others[0], {Util: 1}}}
		for _, v := range m.Speeds(s, nil) {
			if !(v >= interfere.MinSpeed && v <= 1) {
				t.Fatalf("speed %v", v)
			}
		}
	})
}
