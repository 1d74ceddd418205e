package jsonout

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cmd/internal/jsonout/jsontest"
)

type inner struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
	Ratio float64  `json:"ratio"`
	Small float32  `json:"small"`
	Deep  []struct {
		At   time.Time  `json:"at"`
		Ends *time.Time `json:"ends,omitempty"`
	} `json:"deep"`
	Skipped int `json:"-"`
	hidden  int
}

var _ = inner{}.hidden // which nobody prints

type embedded struct {
	Array *uint64        `json:"array"`
	Of    map[string]int `json:"of"`
}

type outer struct {
	ID    uint64  `json:"id"`
	First *string `json:"first,omitempty"`
	Kept  *inner  `json:"kept" keep:""`
	embedded
	Nice    int8    `json:"nice"`
	Own     inner   `json:"own"`
	Raw     []byte  `json:"raw"`
	Any     any     `json:"any"`
	List    []inner `json:"list,omitempty"`
	Yes     bool    `json:"yes"`
	Unnamed string
}

// none has no member where all is empty.
type none struct {
	A string `json:"a,omitempty"`
	B int    `json:"b,omitempty"`
}

// hides has two members of one name, of which encoding/json takes the outer one.
type hides struct {
	embedded
	Array string `json:"array"`
}

// grows is within itself.
type grows struct {
	Next *grows `json:"next"`
	N    int    `json:"n"`
}

type odd struct {
	Quoted int             `json:"quoted,string"`
	Zero   time.Time       `json:"zero,omitzero"`
	Own    json.RawMessage `json:"own"`
}

// TestAsEncodingJSON: whatever is written is what encoding/json makes of it, also of several
// values one after the other that have a part in common.
func TestAsEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(0, 20).Draw(t, "depth")
		e, shared := NewEncoder(depth), map[reflect.Type][]reflect.Value{}
		for range rapid.IntRange(1, 4).Draw(t, "values") {
			for _, p := range []any{&outer{}, &none{}, &hides{}, &inner{}, new([]outer)} {
				jsontest.Fill(t, p, shared)
				for _, v := range []any{p, reflect.ValueOf(p).Elem().Interface()} {
					is(t, e, v, depth)
				}
			}
		}
	})
}

func is(t interface {
	Helper()
	Fatalf(string, ...any)
}, e *Encoder, v any, depth int) {
	t.Helper()
	want, err := jsontest.Naive(v, depth)
	if err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	got, err := e.Append([]byte("before"), v)
	if err != nil || string(got) != "before"+want {
		t.Fatalf("%T: %v\n%s\nwant\n%s", v, err, got, want)
	}
}

// TestTypes are those that are left to encoding/json.
func TestTypes(t *testing.T) {
	t.Parallel()
	e, n := NewEncoder(1), 3
	for _, v := range []any{nil, 1, "é", grows{N: 1, Next: &grows{}}, odd{Quoted: 3, Own: json.RawMessage(`{"a":[1,"\u202e"]}`)}, &n, []int(nil), []any{1, "x", nil}, [2]int{1, 2},
		map[string]any{"b": []int{1}, "a": struct{}{}}, json.Number("1e5"), time.Unix(0, 0).UTC(), (*outer)(nil), struct{}{}} {
		is(t, e, v, 1)
	}
}

// TestFaults: what has no JSON is an error, and nothing of it is written.
func TestFaults(t *testing.T) {
	t.Parallel()
	far := time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, v := range []any{&inner{Ratio: math.NaN()}, &inner{Ratio: math.Inf(1)}, &struct{ At *time.Time }{&far}, func() {}, struct{ C chan int }{}} {
		got, err := NewEncoder(0).Append([]byte("before"), v)
		_, want := json.Marshal(v)
		if string(got) != "before" || err == nil || want == nil || errors.Unwrap(err) != nil && errors.Unwrap(err).Error() != errors.Unwrap(want).Error() {
			t.Errorf("%T: %q, %v; want %v", v, got, err, want)
		}
	}
}

// TestKeptIsBounded: texts that are kept take no more than their bound.
func TestKeptIsBounded(t *testing.T) {
	t.Parallel()
	e := NewEncoder(0)
	for range 300 {
		o := &outer{Kept: &inner{Name: string(make([]byte, 10_000))}}
		if _, err := e.Append(nil, o); err != nil {
			t.Fatal(err)
		}
		all := 0
		for _, text := range e.texts {
			all += len(text)
		}
		if all > mostKept || all != e.kept {
			t.Fatalf("%d bytes are kept, counted as %d", all, e.kept)
		}
	}
}
