package jq

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// patience is when it has failed, on any machine.
const patience = 15 * time.Second

func run(t *testing.T, f *Filter, in string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := f.Run(t.Context(), strings.NewReader(in), &out)
	return out.String(), err
}

// TestResults: each on a line, texts as they are, numbers as they were, values one by one.
func TestResults(t *testing.T) {
	t.Parallel()
	const jobs = `[{"id":3,"name":"a b","gpus":0.25,"big":18446744073709551615},{"id":4,"name":"<c>\n"}]`
	for _, c := range []struct{ expr, in, want string }{
		{".[].id", jobs, "3\n4\n"},
		{".[].name", jobs, "a b\n<c>\n\n"},
		{".[0].gpus, .[0].big", jobs, "0.25\n18446744073709551615\n"},
		{".[0] | {id, name}", jobs, "{\"id\":3,\"name\":\"a b\"}\n"},
		{"map(select(.id > 3)) | length", jobs, "1\n"},
		{".missing?, null", jobs, "null\n"},
		{`.[] | "\(.id)\t\(.name)"`, `[{"id":1,"name":"x"}]`, "1\tx\n"},
		{`.[] | [.id, .name] | @tsv`, `[{"id":1,"name":"x"}]`, "1\tx\n"},
		{".a", "{\"a\":1}\n{\"a\":2}\n", "1\n2\n"},
		{"empty", jobs, ""},
		{"$ENV | length, (env | length)", "1", "0\n0\n"},
		{".[] | halt", "[1,2]", ""},
	} {
		f, err := New(c.expr)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		if got, err := run(t, f, c.in); got != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.expr, got, err, c.want)
		}
	}
	f, _ := New(".")
	f.Terminal = true
	if got, err := run(t, f, `{"a":["\u001b[31m","\u202e"]} "\u001b]0;x\u0007\n"`); err != nil || got != "{\n  \"a\": [\n    \"\\u001b[31m\",\n    \"\\u202e\"\n  ]\n}\n\\x1b]0;x\\x07\n\n" {
		t.Errorf("on a terminal: %q, %v", got, err)
	}
}

// TestWrong: what is wrong is said with its place, and no expression works or prints for ever.
func TestWrong(t *testing.T) {
	t.Parallel()
	for expr, says := range map[string]string{
		".[":                   "at its end",
		".jobs[] | | .id":      "at character 11: | .id",
		"é | ]":                "at character 1",
		".a | foo(1)":          "function not defined: foo/1 at character 6: foo(1)",
		"$x":                   "variable not defined: $x at character 1",
		`import "a" as a; .`:   "module",
		".a \x1b]0;x\a }":      `\x1b]0;x\x07`,
		"":                     "",
		strings.Repeat("(", 9): "at its end",
	} {
		_, err := New(expr)
		if says == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", expr, err, says)
		}
	}
	for name, c := range map[string]struct{ expr, in, says string }{
		"another kind":   {".a", "[1]", "array"},
		"the second one": {".a", `{"a":1} 7`, "value 2: "},
		"an error":       {`error("so")`, "1", "so"},
		"for ever":       {"last(repeat(1))", "1", "took 50ms on one value"},
		"without end":    {"repeat(1)", "1", "prints more than"},
		"no JSON":        {".", "JOBID NAME", "is not JSON"},
		"half of it":     {".", `{"a":`, "is not JSON"},
	} {
		f, err := New(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		f.time, f.most = 50*time.Millisecond, 1000
		began := time.Now()
		if _, err := run(t, f, c.in); err == nil || !strings.Contains(err.Error(), c.says) || time.Since(began) > patience {
			t.Errorf("%s: %v after %s, want %q", name, err, time.Since(began), c.says)
		}
	}
}

// TestAtOnce: what comes of a value is printed before the next one comes.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	f, err := New(".a")
	if err != nil {
		t.Fatal(err)
	}
	in, out := make(chan string), make(chan string)
	done := make(chan error)
	go func() { done <- f.Run(context.Background(), reader(in), writer(out)) }()
	for _, s := range []string{"1", "2"} {
		in <- `{"a":` + s + "}\n"
		select {
		case got := <-out:
			if got != s+"\n" {
				t.Errorf("%q, want %s", got, s)
			}
		case <-time.After(patience):
			t.Fatalf("%s is not printed", s)
		}
	}
	close(in)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type reader chan string

func (r reader) Read(p []byte) (int, error) {
	s, ok := <-r
	if !ok {
		return strings.NewReader("").Read(p)
	}
	return copy(p, s), nil
}

type writer chan string

func (w writer) Write(p []byte) (int, error) { w <- string(p); return len(p), nil }

// TestIdentity: the expression "." gives back whatever JSON comes.
func TestIdentity(t *testing.T) {
	t.Parallel()
	f, err := New(".")
	if err != nil {
		t.Fatal(err)
	}
	leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.Int64(), func(n int64) any { return n }))
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.MapOf(rapid.String(), rapid.SliceOf(leaf)).Draw(t, "v")
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.Run(context.Background(), bytes.NewReader(raw), &out); err != nil {
			t.Fatal(err)
		}
		read := func(b []byte) (x any) {
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber()
			if err := d.Decode(&x); err != nil {
				t.Fatal(err)
			}
			return x
		}
		if d := cmp.Diff(read(raw), read(out.Bytes())); d != "" {
			t.Error(d)
		}
	})
}

// TestProgram: it says that it is ready once it read the expression, and ends by code.
func TestProgram(t *testing.T) {
	for name, c := range map[string]struct {
		args              []string
		code              int
		ready, out, words string
	}{
		"good":    {[]string{".a"}, 0, "\x01", "1\n", ""},
		"wrong":   {[]string{".["}, 2, "", "", "at its end"},
		"none":    {nil, 2, "", "", "--jq"},
		"of kind": {[]string{".[0]"}, 1, "\x01", "", "object"},
	} {
		var out, errs, ready bytes.Buffer
		code := Main(c.args, strings.NewReader(`{"a":1}`), &out, &errs, closer{&ready})
		if code != c.code || ready.String() != c.ready || out.String() != c.out || !strings.Contains(errs.String(), c.words) {
			t.Errorf("%s: code %d, ready %q, %q, %q", name, code, ready.String(), out.String(), errs.String())
		}
	}
}

type closer struct{ *bytes.Buffer }

func (closer) Close() error { return nil }
