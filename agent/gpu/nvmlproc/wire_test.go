package nvmlproc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/gpu"
)

func raw(version, k byte, length uint32, body string) []byte {
	b := []byte{'B', 'N', version, k, 0, 0, 0, 7, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[8:], length)
	return append(b, body...)
}

func TestReadFrame(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		in   []byte
		want string // part of the error; "" is none
	}{
		{"a question", raw(1, 3, 0, ""), ""},
		{"an answer", raw(1, 3, 2, "{}"), ""},
		{"half a header", []byte("BN\x01"), "half a header"},
		{"another protocol", append([]byte("HTTP"), make([]byte, 8)...), `begins with "HT"`},
		{"another version", raw(2, 3, 0, ""), "version 2, this end speaks 1"},
		{"no such kind", raw(1, 9, 0, ""), "kind 9"},
		{"kind 0", raw(1, 0, 0, ""), "kind 0"},
		{"too long", raw(1, 3, maxBody+1, ""), "4194305 bytes, at most 4194304"},
		{"cut off", raw(1, 3, 100, "{"), "1 of 100 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f, err := readFrame(bytes.NewReader(tc.in))
			if tc.want == "" {
				if err != nil || f.id != 7 || f.kind != kindUsage {
					t.Errorf("got %+v, %v", f, err)
				}
				return
			}
			if !errors.Is(err, errFrame) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := readFrame(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := (frame{kind: kindUsage, body: make([]byte, maxBody+1)}).write(io.Discard); !errors.Is(err, errFrame) {
		t.Errorf("a frame too long to read is written: %v", err)
	}
}

func TestDecodeAnswer(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"UUID":"GPU-%d"}`, i)
		}
		return strings.TrimPrefix(b.String(), ",")
	}
	for _, tc := range []struct{ name, body, want string }{
		{"nothing", `{}`, ""},
		{"a card", `{"Cards":[{"UUID":"GPU-a"}],"Usage":[{"UUID":"GPU-a","Processes":[{"PID":3}]}]}`, ""},
		{"no JSON", `{`, "usage:"},
		{"a card without a name", `{"Usage":[{}]}`, "UUID of 0 bytes"},
		{"a card twice", `{"Health":[{"UUID":"a"},{"UUID":"a"}]}`, "twice"},
		{"no pid", `{"Usage":[{"UUID":"a","Processes":[{"PID":0}]}]}`, "pid 0"},
		{"too many cards", `{"Cards":[` + many(maxCards+1) + `]}`, "257 cards"},
		{"a name that long", `{"Cards":[{"UUID":"` + strings.Repeat("x", 129) + `"}]}`, "UUID of 129 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeAnswer(frame{kind: kindUsage, body: []byte(tc.body)})
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, errFrame) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Errors keep through the pipe what callers ask of them.
func TestFaults(t *testing.T) {
	t.Parallel()
	err := errors.Join(
		&gpu.CardError{Index: 1, UUID: "GPU-b", Err: fmt.Errorf("nvmlX: %w", gpu.ErrLost)},
		errors.Join(&gpu.CardError{Index: 2, Err: errors.New("unknown error (code 999)")}),
		errors.New("nvmlDeviceGetCount: timeout"))
	fs := faultsOf(err)
	want := []fault{
		{Index: 1, UUID: "GPU-b", Text: "nvmlX: GPU is lost", Lost: true},
		{Index: 2, Text: "unknown error (code 999)"},
		{Index: -1, Text: "nvmlDeviceGetCount: timeout"},
	}
	if d := cmp.Diff(want, fs); d != "" {
		t.Errorf("faults (-want +got):\n%s", d)
	}
	back := errorsOf(fs)
	if back.Error() != err.Error() || !errors.Is(back, gpu.ErrLost) {
		t.Errorf("got %q, want %q", back, err)
	}
	if errors.Is(fs[1].err(), gpu.ErrLost) || faultsOf(nil) != nil || errorsOf(nil) != nil {
		t.Error("errors where there are none")
	}
	if e, ok := errors.AsType[*gpu.CardError](fs[0].err()); !ok || e.UUID != "GPU-b" || e.Index != 1 {
		t.Errorf("card error: %+v", e)
	}
}

// What one end writes, the other reads, and nothing else.
func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var buf bytes.Buffer
		var want []frame
		for range rapid.IntRange(0, 5).Draw(t, "frames") {
			f := frame{
				kind: kind(rapid.IntRange(int(kindHello), int(kindEnd)-1).Draw(t, "kind")),
				id:   rapid.Uint32().Draw(t, "id"), body: rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "body"),
			}
			if err := f.write(&buf); err != nil {
				t.Fatal(err)
			}
			want = append(want, f)
		}
		for _, w := range want {
			got, err := readFrame(&buf)
			if err != nil || got.kind != w.kind || got.id != w.id || !bytes.Equal(got.body, w.body) {
				t.Fatalf("got %+v, %v, want %+v", got, err, w)
			}
		}
		if _, err := readFrame(&buf); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last: %v", err)
		}
	})
}

// FuzzDecode reads what a child in trouble may write: it must be refused or
// read, without a panic and without memory for what is not there.
func FuzzDecode(f *testing.F) {
	f.Add(raw(1, 1, 17, `{"Driver":"580"} `))
	f.Add(raw(1, 2, 27, `{"Cards":[{"UUID":"GPU-a"}]}`))
	f.Add(raw(1, 3, 52, `{"Usage":[{"UUID":"a","Processes":[{"PID":1}]}]}    `))
	f.Add(raw(1, 5, 30, `{"UUID":"a","Kind":1,"Xid":79}`))
	f.Add(raw(1, 3, maxBody, `{`))
	f.Add(raw(1, 6, 28, `{"UUID":"a","SetMilliW":100}`))
	f.Add([]byte("BN"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			fr, err := readFrame(r)
			if err != nil {
				return
			}
			switch fr.kind {
			case kindHello:
				_, _ = decodeHello(fr)
			case kindTune:
				if q, err := decodeTune(fr); err == nil && (q.UUID == "" || q.SetMilliW < 0 || q.LockMHz != nil && *q.LockMHz < 0) {
					t.Errorf("accepted %+v", q)
				}
			case kindEvent:
				if e, err := decodeEvent(fr); err == nil && (e.UUID == "" || e.Kind.String() == "") {
					t.Errorf("accepted %+v", e)
				}
			default:
				a, err := decodeAnswer(fr)
				if err == nil && (len(a.Cards) > maxCards || len(a.Usage) > maxCards) {
					t.Errorf("accepted %d cards", max(len(a.Cards), len(a.Usage)))
				}
			}
		}
	})
}

// stillDriver answers nothing but events.
type stillDriver struct {
	gpu.Tuner
	gpu.Cutter
	events []gpu.Event
}

func (stillDriver) Inventory(context.Context) ([]gpu.Card, error) { return nil, nil }
func (stillDriver) Usage(context.Context) ([]gpu.Usage, error)    { return nil, errors.New("no") }
func (stillDriver) Health(context.Context) ([]gpu.Health, error)  { return nil, nil }
func (stillDriver) Versions() (string, string)                    { return "580", "13.0" }
func (d stillDriver) Watch(ctx context.Context, emit func(gpu.Event)) error {
	for _, e := range d.events {
		emit(e)
	}
	<-ctx.Done()
	return ctx.Err()
}

// A question that is none ends the child, as does the end of its input.
func TestServeRefusesNonsense(t *testing.T) {
	t.Parallel()
	open := func() (Driver, error) { return stillDriver{events: []gpu.Event{{Kind: gpu.EventXid}}}, nil }
	log := slog.New(slog.DiscardHandler)
	for _, tc := range []struct {
		name string
		in   []byte
		want error
	}{
		{"nothing", nil, nil},
		{"a question", raw(1, 3, 0, ""), nil},
		{"an event", raw(1, 5, 0, ""), errFrame},
		{"nothing to set", raw(1, 6, 0, ""), errFrame},
		{"power of no card", raw(1, 6, 2, "{}"), errFrame},
		{"power below nothing", raw(1, 6, 27, `{"UUID":"a","SetMilliW":-1}`), errFrame},
		{"a clock beyond counting", raw(1, 6, 34, `{"UUID":"a","LockMHz":99999999999}`), errFrame},
		{"a cut of no card", raw(1, 7, 2, "{}"), errFrame},
		{"noise", []byte("GET / HTTP/1.1\r\n\r\n"), errFrame},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := Serve(bytes.NewReader(tc.in), &out, open, log); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if f, err := readFrame(&out); err != nil || f.kind != kindHello {
				t.Errorf("first frame: %+v, %v", f, err)
			}
		})
	}
}

// A reader that does not come loses the oldest events and holds up nobody.
func TestEventQueue(t *testing.T) {
	t.Parallel()
	q := newEventQueue()
	for i := range 3 * queuedEvents {
		q.put(gpu.Event{Xid: i})
	}
	if e := <-q.out; e.Xid != 2*queuedEvents {
		t.Errorf("oldest kept is %d, want %d", e.Xid, 2*queuedEvents)
	}
	q.close()
	q.put(gpu.Event{}) // after the end: nothing
	n := 0
	for range q.out {
		n++
	}
	if n != queuedEvents-1 {
		t.Errorf("%d events were left, want %d", n, queuedEvents-1)
	}
}

// A state that lasts is told once, and silence hides no loss.
func TestCardStates(t *testing.T) {
	t.Parallel()
	c := newCards(3, slog.New(slog.DiscardHandler))
	c.events = newEventQueue()
	c.look([]gpu.Card{{UUID: "a"}, {UUID: "b"}}, nil)
	<-c.changed
	c.glance([]string{"a"}, []fault{{Index: 1, UUID: "b", Lost: true}})
	<-c.changed
	c.silent("no answer")
	c.silent("still none")
	if s := c.states(); s[0].State != gpu.StateUnknown || s[0].Reason != "no answer" || s[1].State != gpu.StateLost {
		t.Errorf("states: %+v", s)
	}
	c.glance([]string{"a", "b", "c"}, nil)
	if s := c.states(); len(s) != 2 || s[0].State != gpu.StateOK || s[1].State != gpu.StateOK {
		t.Errorf("states: %+v", s)
	}
	select {
	case <-c.changed: // and c is news
	default:
		t.Error("nobody was told of a new card")
	}
}
