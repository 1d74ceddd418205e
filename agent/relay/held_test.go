package relay

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

var _ = draws.Fixed()

func kept(term bool) *held { return &held{term: term, news: make(chan struct{})} }

// room is what the output that is kept takes.
func (h *held) room() (n int) {
	for _, p := range h.parts {
		n += cap(p.data)
	}
	return n
}

// TestDripsTakeLittle: a command that writes a byte at a time has as much kept of it as
// any other. Each of these in a buffer of its own took 31 KiB: 8 GiB for one shell.
func TestDripsTakeLittle(t *testing.T) {
	t.Parallel()
	h, buf := kept(true), make([]byte, apiconv.FrameData) // as read has it
	for i := range 2 * ringBytes {
		buf[0] = byte(i)
		if !h.put(part{i%4096 == 0, buf[:1]}) {
			t.Fatal("nobody takes it")
		}
	}
	if got := h.room(); got > 2*ringBytes {
		t.Errorf("%d KiB are kept for %d KiB of output", got>>10, (h.end-h.first)>>10)
	}
	if h.end != 2*ringBytes || h.end-h.first > ringBytes || h.end-h.first < ringBytes-apiconv.FrameData {
		t.Errorf("from %d to %d is kept", h.first, h.end)
	}
}

// TestKeptOutput has pieces of all sizes of both outputs kept and read from anywhere: what
// is there is what was written, in its order, whoever reads while more comes.
func TestKeptOutput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := kept(true)
		var all [2][]byte // what was written, and to which output
		type reading struct{ got, want []byte }
		var reads []reading
		for range rapid.IntRange(1, 60).Draw(t, "pieces") {
			n := rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, apiconv.FrameData)).Draw(t, "bytes")
			stderr := rapid.Bool().Draw(t, "stderr")
			piece := make([]byte, n, apiconv.FrameData)
			for i := range piece {
				piece[i] = byte(len(all[0]) + i)
			}
			all[0] = append(all[0], piece...)
			all[1] = append(all[1], bytes.Repeat([]byte{map[bool]byte{true: 1}[stderr]}, n)...)
			if !h.put(part{stderr, piece}) {
				t.Fatal("nobody takes it")
			}
			clear(piece) // the next read is into the same memory
			at := rapid.Uint64Range(h.first, h.end).Draw(t, "at")
			data, of := h.from(at)
			want := all[0][at:min(at+uint64(len(data)), h.end)]
			if (data == nil) != (at == h.end) || !bytes.Equal(data, want) || bytes.IndexByte(all[1][at:at+uint64(len(data))], map[bool]byte{false: 1}[of]) >= 0 {
				t.Fatalf("at %d of %d to %d: %d bytes of %v", at, h.first, h.end, len(data), of)
			}
			reads = append(reads, reading{data, bytes.Clone(want)})
		}
		for _, r := range reads { // that is sent while others are added
			if !bytes.Equal(r.got, r.want) {
				t.Fatal("what somebody reads has changed")
			}
		}
	})
}

// TestNothingIsNoInput: frames without a byte are not kept, of which a user may send any number.
func TestNothingIsNoInput(t *testing.T) {
	t.Parallel()
	h := kept(false)
	h.takeInput([]byte("a"))
	for range 1000 {
		h.takeInput(nil)
		h.takeInput([]byte{})
	}
	if len(h.queue) != 1 || h.inputHad != 1 {
		t.Errorf("%d frames of %d bytes are kept", len(h.queue), h.inputHad)
	}
	for range 100 {
		h.takeInput(make([]byte, apiconv.MaxFrameData))
	}
	if len(h.queue) > 4 {
		t.Errorf("%d frames are kept", len(h.queue))
	}
}
