package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// sample is a file with a state of three entries.
func sample(t testing.TB) (*fsm.Capture, []byte) {
	t.Helper()
	f := fsm.New(fsm.Options{Version: "test"})
	for i := uint64(1); i <= 3; i++ {
		cmd := &logv1.Command{Kind: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Node: "none"}}}
		data, err := fsm.EncodeEntry(1, 2, 1_700_000_000_000_000, []*logv1.Command{cmd})
		if err != nil {
			t.Fatal(err)
		}
		f.Apply(&raft.Log{Index: i, Term: 2, Data: data})
	}
	c := f.Capture()
	var b bytes.Buffer
	err := Write(&b, Header{ClusterID: "hpc", ClusterName: "lab", Version: "0.9", Saved: time.Unix(1_800_000_000, 0).UTC()}, c)
	if err != nil {
		t.Fatal(err)
	}
	return c, b.Bytes()
}

func check(data []byte) (Header, error) { return Check(bytes.NewReader(data), int64(len(data))) }

// TestWhatIsWrittenIsReadBack: header, state and hash are those of the state
// that was saved, and ids are left out when that is asked for.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	c, data := sample(t)
	h, err := check(data)
	if err != nil || h.Index != 3 || h.Term != 2 || h.ClusterID != "hpc" || h.NextJob != 1 || h.Format != Format {
		t.Fatalf("header %+v, error %v", h, err)
	}
	_, back, err := Load(bytes.NewReader(data), nil)
	if err != nil || !bytes.Equal(back.Hash, c.Hash) {
		t.Fatalf("state %v, error %v; want hash %x", back, err, c.Hash)
	}
	_, ahead, err := Load(bytes.NewReader(data), &fsm.Revival{SkipJobs: 500})
	if err != nil || ahead.NextJob != c.NextJob+500 || bytes.Equal(ahead.Hash, c.Hash) {
		t.Fatalf("next job %v, error %v", ahead, err)
	}
	if _, _, err := Load(bytes.NewReader(data), &fsm.Revival{SkipJobs: 1 << 60}); err == nil || !strings.Contains(err.Error(), "2^53") {
		t.Errorf("more ids than there are: %v", err)
	}
}

// TestDamageIsRefused: no byte may change, and none may be missing or too many.
func TestDamageIsRefused(t *testing.T) {
	t.Parallel()
	_, data := sample(t)
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x20
		if _, err := check(bad); err == nil {
			t.Errorf("byte %d may change", i)
		}
		if _, err := check(data[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := check(append(bytes.Clone(data), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// withHeader is a file with another header, and the checksum that belongs to it.
func withHeader(t testing.TB, change func(*Header)) []byte {
	_, data := sample(t)
	n := 12 + int(binary.LittleEndian.Uint32(data[8:]))
	var h Header
	if err := json.Unmarshal(data[12:n], &h); err != nil {
		t.Fatal(err)
	}
	change(&h)
	head, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	out := append(binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(head))), head...)
	out = append(out, data[n:len(data)-sha256.Size]...)
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

// TestFilesFromTheFuture: what this release cannot read is refused with what to
// do, not taken for damage.
func TestFilesFromTheFuture(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Header)
		want   string
	}{
		"format":  {func(h *Header) { h.Format = Format + 1 }, fmt.Sprintf("of format %d, written by berth 0.9", Format+1)},
		"entries": {func(h *Header) { h.EntryVersion = fsm.EntryVersion + 1 }, "use that release or a later one"},
	} {
		if _, err := check(withHeader(t, c.change)); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// A checksum proves nothing about a header that somebody wrote anew.
	lied := withHeader(t, func(h *Header) { h.Index = 99 })
	if _, err := check(lied); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(bytes.NewReader(lied), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("a header about another state: %v", err)
	}
}

// FuzzReadHeader: no beginning of a file makes it panic, read without end, or
// accept what cannot be.
func FuzzReadHeader(f *testing.F) {
	_, data := sample(f)
	f.Add(data)
	f.Add(data[:40])
	f.Add([]byte(magic + "\xff\xff\xff\xff{}"))
	f.Add([]byte(magic + "\x02\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHeader(io.LimitReader(bytes.NewReader(b), int64(len(b))))
		if err == nil && (h.Format != Format || h.ClusterID == "" || h.Index == 0) {
			t.Errorf("accepted %+v", h)
		}
	})
}
