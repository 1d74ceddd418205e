package gossip

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

var testKey = []byte("0123456789abcdef")

func sampleMeta() Meta {
	return Meta{
		Node: "gpu-17", Role: RoleAgent, Protocol: 3, Port: 7421, Flags: FlagLeader | 1,
		Boot: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Inventory: 0x1122334455667788,
	}
}

func sampleCapacity() Capacity {
	return Capacity{
		Node: "gpu-17", Boot: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Seq: 9,
		GPUs: []GPU{
			{ID: 0xAABBCCDD00112233, FreeMiB: 18110, StrayMiB: 2048, UtilMilli: 730},
			{ID: 1, UtilMilli: UtilUnknown},
		},
	}
}

// The bytes on the wire: daemons of two releases gossip with each other, so
// these may change only with their version.
func TestGolden(t *testing.T) {
	t.Parallel()
	m, err := sampleMeta().Append(nil)
	if err != nil {
		t.Fatalf("encode meta: %v", err)
	}
	c, err := sampleCapacity().Append(nil, testKey)
	if err != nil {
		t.Fatalf("encode capacity: %v", err)
	}
	for _, tc := range []struct {
		name string
		got  []byte
		want string
	}{
		{"meta", m, "be47 01 02 0003 1cfd 0003 0102030405060708 1122334455667788 000000 06 6770752d3137"},
		{"capacity", c, "be43 02 0102030405060708 0000000000000009 02 06 6770752d3137" +
			"aabbccdd00112233 000046be 00000800 02da" + "0000000000000001 00000000 00000000 ffff" + "4a3e74430d249b483dd5b89602f9e235"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(tc.want, " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if !bytes.Equal(tc.got, want) {
			t.Errorf("%s:\n got %x\nwant %x", tc.name, tc.got, want)
		}
	}
}

func TestLargestMessages(t *testing.T) {
	t.Parallel()
	m := sampleMeta()
	m.Node = strings.Repeat("x", MaxNode)
	b, err := m.Append(nil)
	if err != nil || len(b) != MaxMeta {
		t.Errorf("longest meta: %d bytes, %v; want %d", len(b), err, MaxMeta)
	}
	c := Capacity{Node: m.Node, Seq: 1<<64 - 1}
	for i := range MaxGPUs {
		c.GPUs = append(c.GPUs, GPU{ID: uint64(i), FreeMiB: 1<<32 - 1, StrayMiB: 1<<32 - 1, UtilMilli: 1000})
	}
	b, err = c.Append(nil, testKey)
	if err != nil || len(b) != MaxCapacity || len(b) > memberlistLimit {
		t.Errorf("largest capacity: %d bytes, %v; want %d", len(b), err, MaxCapacity)
	}
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(*Meta){
		"no name":     func(m *Meta) { m.Node = "" },
		"long name":   func(m *Meta) { m.Node = strings.Repeat("x", MaxNode+1) },
		"upper case":  func(m *Meta) { m.Node = "N1" },
		"dot first":   func(m *Meta) { m.Node = ".n1" },
		"line break":  func(m *Meta) { m.Node = "n1\n" },
		"no role":     func(m *Meta) { m.Role = 0 },
		"future role": func(m *Meta) { m.Role = 9 },
	} {
		m := sampleMeta()
		bad(&m)
		if b, err := m.Append(nil); !errors.Is(err, ErrFormat) || b != nil {
			t.Errorf("%s: encoded to %x, %v", name, b, err)
		}
	}
	for name, bad := range map[string]func(*Capacity){
		"no name":       func(c *Capacity) { c.Node = "" },
		"too many GPUs": func(c *Capacity) { c.GPUs = make([]GPU, MaxGPUs+1) },
		"utilization":   func(c *Capacity) { c.GPUs[0].UtilMilli = 1001 },
		"same GPU":      func(c *Capacity) { c.GPUs[1].ID = c.GPUs[0].ID },
	} {
		c := sampleCapacity()
		bad(&c)
		if b, err := c.Append(nil, testKey); !errors.Is(err, ErrFormat) || b != nil {
			t.Errorf("%s: encoded to %x, %v", name, b, err)
		}
	}
}

// Every message cut short, lengthened, or with a foreign first part is refused.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	meta, _ := sampleMeta().Append(nil)
	capacity, _ := sampleCapacity().Append(nil, testKey)
	parseMeta := func(b []byte) error { _, err := ParseMeta(b); return err }
	parseCapacity := func(b []byte) error { _, err := ParseCapacity(b); return err }
	for _, tc := range []struct {
		name  string
		good  []byte
		parse func([]byte) error
		other func([]byte) error
		spoil []int // offsets where one more is always an error
	}{
		{"meta", meta, parseMeta, parseCapacity, []int{0, 1, 2, 3, 26, 27, 28, 29}},
		{"capacity", capacity, parseCapacity, parseMeta, []int{0, 1, 2, 19, 20}},
	} {
		if err := tc.parse(tc.good); err != nil {
			t.Fatalf("%s: good message refused: %v", tc.name, err)
		}
		if err := tc.other(tc.good); !errors.Is(err, ErrFormat) {
			t.Errorf("%s taken for the other kind: %v", tc.name, err)
		}
		for n := range tc.good {
			if err := tc.parse(tc.good[:n]); !errors.Is(err, ErrFormat) {
				t.Errorf("%s cut to %d bytes: %v", tc.name, n, err)
			}
		}
		if err := tc.parse(append(bytes.Clone(tc.good), 0)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s with a byte more: %v", tc.name, err)
		}
		for _, i := range tc.spoil {
			b := bytes.Clone(tc.good)
			b[i]++
			if err := tc.parse(b); !errors.Is(err, ErrFormat) {
				t.Errorf("%s with byte %d changed: %v", tc.name, i, err)
			}
		}
	}
}

func TestNewer(t *testing.T) {
	t.Parallel()
	old := sampleCapacity()
	for _, tc := range []struct {
		name string
		edit func(*Capacity)
		want bool
	}{
		{"the same", func(*Capacity) {}, false},
		{"next", func(c *Capacity) { c.Seq++ }, true},
		{"replayed", func(c *Capacity) { c.Seq-- }, false},
		{"after a boot", func(c *Capacity) { c.Boot[0]++; c.Seq = 0 }, true},
	} {
		c := sampleCapacity()
		tc.edit(&c)
		if got := c.Newer(old); got != tc.want {
			t.Errorf("%s: Newer = %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestHashes(t *testing.T) {
	t.Parallel()
	const id = "0c7d4b0e-3b0f-4d1a-9f65-0f3fbd2c1c11"
	if BootHash(id+"\n") != BootHash(id) || BootHash(id) == BootHash("x") {
		t.Error("boot hashes do not tell boots apart")
	}
	if UUIDHash("GPU-a") == UUIDHash("GPU-b") {
		t.Error("UUID hashes do not tell cards apart")
	}
}

func genNode() *rapid.Generator[string] { return rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,62}`) }

func genBoot(t *rapid.T) (b [8]byte) {
	copy(b[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "boot"))
	return b
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := Meta{
			Node:     genNode().Draw(t, "node"),
			Role:     rapid.SampledFrom([]Role{RoleCoordinator, RoleAgent}).Draw(t, "role"),
			Protocol: rapid.Uint16().Draw(t, "protocol"), Port: rapid.Uint16().Draw(t, "port"),
			Flags: Flags(rapid.Uint16().Draw(t, "flags")), Boot: genBoot(t), Inventory: rapid.Uint64().Draw(t, "inventory"),
		}
		b, err := m.Append([]byte("kept"))
		if err != nil {
			t.Fatalf("encode meta: %v", err)
		}
		got, err := ParseMeta(bytes.TrimPrefix(b, []byte("kept")))
		if err != nil || got != m {
			t.Fatalf("meta: sent %+v, got %+v, %v", m, got, err)
		}
		c := Capacity{Node: m.Node, Boot: m.Boot, Seq: m.Inventory}
		for _, id := range rapid.SliceOfNDistinct(rapid.Uint64(), 0, MaxGPUs, rapid.ID[uint64]).Draw(t, "gpus") {
			c.GPUs = append(c.GPUs, GPU{
				ID: id, FreeMiB: rapid.Uint32().Draw(t, "free"), StrayMiB: rapid.Uint32().Draw(t, "strays"), UtilMilli: rapid.Uint16Range(0, 1000).Draw(t, "util"),
			})
		}
		b, err = c.Append(nil, testKey)
		if err != nil || len(b) > MaxCapacity {
			t.Fatalf("encode capacity: %d bytes, %v", len(b), err)
		}
		gotC, err := ParseCapacity(b)
		if d := cmp.Diff(c, gotC, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Fatalf("capacity: %v (-sent +got):\n%s", err, d)
		}
	})
}

// Only a whole message of who has the key counts as signed, and what is passed on
// arrives as it was made.
func TestSigned(t *testing.T) {
	t.Parallel()
	b, err := sampleCapacity().Append(nil, testKey)
	if err != nil || !Signed(b, testKey) {
		t.Fatalf("not signed: %v", err)
	}
	if Signed(b, []byte("another key")) || Signed(nil, testKey) || Signed(b[:len(b)-1], testKey) {
		t.Error("taken for signed")
	}
	for i := range b {
		spoiled := bytes.Clone(b)
		if spoiled[i]++; Signed(spoiled, testKey) {
			t.Errorf("signed with byte %d changed", i)
		}
	}
	inner, ok := Relayed(Relay(b))
	if !ok || !bytes.Equal(inner, b) {
		t.Errorf("passed on as %x", inner)
	}
	if _, ok := Relayed(b); ok {
		t.Error("a capacity taken for one to pass on")
	}
	if _, ok := Relayed(Relay(make([]byte, MaxCapacity+1))); ok {
		t.Error("more than the largest is passed on")
	}
}

// What parses encodes to the very same bytes: there is one form of a message.
func FuzzParse(f *testing.F) {
	m, _ := sampleMeta().Append(nil)
	c, _ := sampleCapacity().Append(nil, testKey)
	f.Add(m)
	f.Add(c)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		if m, err := ParseMeta(in); err == nil {
			if out, err := m.Append(nil); err != nil || !bytes.Equal(in, out) {
				t.Errorf("meta %x encodes to %x, %v", in, out, err)
			}
		} else if !errors.Is(err, ErrFormat) {
			t.Errorf("meta: %v", err)
		}
		if c, err := ParseCapacity(in); err == nil {
			if out, err := c.Append(nil, testKey); err != nil || !bytes.Equal(in[:len(in)-macSize], out[:len(out)-macSize]) {
				t.Errorf("capacity %x encodes to %x, %v", in, out, err)
			}
		} else if !errors.Is(err, ErrFormat) {
			t.Errorf("capacity: %v", err)
		}
	})
}
