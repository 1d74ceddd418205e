package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func requests() map[string]Request {
	return map[string]Request{
		"hello": {ID: 1, Op: OpHello, Hello: &Hello{Version: Version, Attempt: "j1-a1", Cards: []string{"GPU-a", "GPU-b"}, Held: []Alloc{{ID: 1, Card: 1, Bytes: 1 << 30}}}},
		"alloc": {ID: 2, Op: OpAlloc, Alloc: &Alloc{ID: 7, Bytes: 5}},
		"free":  {ID: 3, Op: OpFree, Alloc: &Alloc{ID: 7}},
		"run":   {ID: 4, Op: OpRun, Run: &Run{UtilMilli: 400, Work: time.Minute, Done: time.Second}},
		"stop":  {ID: 5, Op: OpStop},
	}
}

func TestRequestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, q := range requests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var buf bytes.Buffer
			if err := Write(&buf, q); err != nil {
				t.Fatalf("write: %v", err)
			}
			got, err := ReadRequest(&buf)
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			if d := cmp.Diff(q, got); d != "" {
				t.Errorf("(-sent +read):\n%s", d)
			}
		})
	}
}

// The largest restatement a client can have must fit in a frame.
func TestFullestHelloFits(t *testing.T) {
	t.Parallel()
	h := Hello{Version: Version, Attempt: "j18446744073709551615-a4294967295"}
	for range MaxCards {
		h.Cards = append(h.Cards, "GPU-51700000-ffff-ffff-ffff-ffffffffffff")
	}
	for i := range MaxAllocs {
		h.Held = append(h.Held, Alloc{ID: 1<<32 - 1 - uint32(i), Card: MaxCards - 1, Bytes: MaxBytes})
	}
	var buf bytes.Buffer
	if err := Write(&buf, Request{ID: 1<<64 - 1, Op: OpHello, Hello: &h}); err != nil {
		t.Fatalf("write: %v", err)
	}
	if _, err := ReadRequest(&buf); err != nil {
		t.Fatalf("read: %v", err)
	}
}

func TestReadRequestRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		in   []byte
		want error
		msg  string
	}{
		{"nothing", nil, io.EOF, ""},
		{"half a length", []byte{0, 0}, io.ErrUnexpectedEOF, ""},
		{"half a body", frame(`{"op":"stop"}`)[:8], io.ErrUnexpectedEOF, ""},
		{"length zero", []byte{0, 0, 0, 0}, ErrFrame, "length 0"},
		{"length too long", []byte{0xff, 0xff, 0xff, 0xff}, ErrFrame, "length 4294967295"},
		{"no JSON", frame("hello"), ErrFrame, "invalid character"},
		{"no operation", frame("{}"), ErrFrame, "unknown operation"},
		{"hello without one", frame(`{"op":"hello"}`), ErrFrame, "no hello"},
		{"other version", frame(`{"op":"hello","hello":{"v":9,"attempt":"j1-a1","cards":["a"]}}`), ErrFrame, "version 9"},
		{"no cards", frame(`{"op":"hello","hello":{"v":1,"attempt":"j1-a1"}}`), ErrFrame, "0 cards"},
		{"restated card", frame(`{"op":"hello","hello":{"v":1,"cards":["a"],"held":[{"i":1,"c":1,"b":1}]}}`), ErrFrame, "card 1 is outside"},
		{"restated twice", frame(`{"op":"hello","hello":{"v":1,"cards":["a"],"held":[{"i":1,"b":1},{"i":1,"b":1}]}}`), ErrFrame, "named twice"},
		{"alloc without one", frame(`{"op":"alloc"}`), ErrFrame, "no allocation"},
		{"negative card", frame(`{"op":"alloc","alloc":{"i":1,"c":-1,"b":1}}`), ErrFrame, "card -1"},
		{"negative bytes", frame(`{"op":"alloc","alloc":{"i":1,"b":-1}}`), ErrFrame, "-1 bytes"},
		{"too many bytes", frame(`{"op":"alloc","alloc":{"i":1,"b":9223372036854775807}}`), ErrFrame, "bytes is outside"},
		{"run without one", frame(`{"op":"run"}`), ErrFrame, "no run"},
		{"utilization", frame(`{"op":"run","run":{"util":0,"work":1}}`), ErrFrame, "utilization 0"},
		{"more done than asked", frame(`{"op":"run","run":{"util":1,"work":1,"done":2}}`), ErrFrame, "work 2 of 1"},
		{"free of nothing", frame(`{"op":"free"}`), ErrFrame, "no allocation"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadRequest(bytes.NewReader(tc.in))
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.msg) {
				t.Errorf("got %v, want %v with %q", err, tc.want, tc.msg)
			}
		})
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, q := range requests() {
		var buf bytes.Buffer
		if err := Write(&buf, q); err != nil {
			f.Fatalf("seed: %v", err)
		}
		f.Add(buf.Bytes())
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add(frame(`{"op":"hello","hello":{"v":1,"cards":[""],"held":[{"b":1}]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		q, err := ReadRequest(bytes.NewReader(in))
		if err != nil {
			return
		}
		// What was accepted can be sent on and means the same.
		var buf bytes.Buffer
		if err := Write(&buf, q); err != nil {
			if errors.Is(err, ErrFrame) {
				return // escaping may lengthen it past the bound
			}
			t.Fatalf("write what was read: %v", err)
		}
		again, err := ReadRequest(&buf)
		if err != nil {
			t.Fatalf("read again: %v", err)
		}
		if d := cmp.Diff(q.Op, again.Op); d != "" {
			t.Fatalf("operation changed: %s", d)
		}
		if q.Op == OpAlloc && *q.Alloc != *again.Alloc || q.Op == OpRun && *q.Run != *again.Run {
			t.Fatalf("request changed: %+v, then %+v", q, again)
		}
	})
}

func FuzzReadReply(f *testing.F) {
	f.Add(frame(`{"id":1,"code":"ok","mem":{"total":5}}`))
	f.Add(frame(`{"id":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		rep, err := ReadReply(bytes.NewReader(in))
		if err == nil && rep.Code == "" {
			t.Fatal("a reply without a code was accepted")
		}
	})
}
