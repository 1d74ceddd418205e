package progress

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

var id = cluster.AttemptID{Job: 7, No: 1}

// scene is a feed of one file, and a clock that both go by.
type scene struct {
	*testing.T
	feed *Feed
	path string
	now  time.Time
}

func begin(t *testing.T) *scene {
	s := &scene{T: t, path: filepath.Join(t.TempDir(), "progress"), now: time.Unix(1_700_000_000, 0)}
	s.feed = New(func() time.Time { return s.now })
	s.write("")
	s.feed.Begin(id, s.path, "loss", false)
	return s
}

// write replaces the file now.
func (s *scene) write(text string) {
	s.Helper()
	if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	if err := os.Chtimes(s.path, s.now, s.now); err != nil {
		s.Fatal(err)
	}
}

// after writes a step when so much time has passed, and reads it.
func (s *scene) after(d time.Duration, step, total int) *nodev1.Steps {
	s.Helper()
	s.now = s.now.Add(d)
	s.write(fmt.Sprintf("{\"step\": %d, \"total\": %d}\n", step, total))
	return s.feed.Steps(id)
}

func TestTimeOfAStep(t *testing.T) {
	s := begin(t)
	if got := s.feed.Steps(id); got != nil {
		t.Fatalf("before it said anything: %v", got)
	}
	if got := s.after(time.Minute, 10, 100); got.Step != 10 || got.Total != 100 || got.StepUs != 0 {
		t.Errorf("after one line: %v", got)
	}
	if got := s.after(10*time.Second, 20, 100); got.StepUs != 1_000_000 {
		t.Errorf("ten steps in ten seconds: %v", got)
	}
	s.now = s.now.Add(5 * time.Second)
	if got := s.feed.Steps(id); got.Step != 20 || got.StepUs != 1_000_000 || got.AgoMs != 5000 {
		t.Errorf("five seconds of silence: %v", got)
	}
	if got := s.after(time.Second, 3, 100); got.Step != 3 || got.StepUs != 0 {
		t.Errorf("counted anew: %v", got)
	}
	if got := s.after(10*time.Second, 13, 100); got.StepUs != 1_000_000 {
		t.Errorf("ten steps after that: %v", got)
	}
	for range 2000 {
		s.after(3*time.Second, int(s.feed.Steps(id).Step)+1, 1e6)
	}
	if got := s.feed.Steps(id); got.StepUs < 2_990_000 || got.StepUs > 3_010_000 {
		t.Errorf("a step every three seconds: %v", got)
	}
	if n := len(s.feed.feeds[id].seen); n > 64 {
		t.Errorf("%d lines are remembered", n)
	}
	for range 400 { // ten minutes and more, twice as fast
		s.after(1500*time.Millisecond, int(s.feed.Steps(id).Step)+1, 1e6)
	}
	if got := s.feed.Steps(id); got.StepUs < 1_490_000 || got.StepUs > 1_650_000 {
		t.Errorf("a step every 1.5 s for ten minutes: %v", got)
	}
	s.feed.End(id)
	if got := s.feed.Steps(id); got != nil {
		t.Errorf("after its end: %v", got)
	}
}

// TestLinesThatSayNothing: whatever a job writes, the last line counts that is one.
func TestLinesThatSayNothing(t *testing.T) {
	for name, c := range map[string]struct {
		text        string
		step, total int64 // step -1: it said nothing
	}{
		"nothing":             {"", -1, 0},
		"no JSON":             {"step 1\n", -1, 0},
		"no step":             {`{"total": 5}`, -1, 0},
		"below nothing":       {`{"step": -1}`, -1, 0},
		"too many":            {`{"step": 1e300}`, -1, 0},
		"more than may be":    {`{"step": 1000000000001}`, -1, 0},
		"half a step":         {`{"step": 1.5}`, -1, 0},
		"no number":           {`{"step": "NaN"}`, -1, 0},
		"NaN beside it":       {`{"step": 1, "loss": NaN}`, -1, 0},
		"a list":              {`[1, 2]`, -1, 0},
		"no end of line":      {`{"step": 4, "total": 9}`, 4, 9},
		"the end is missing":  {"{\"step\": 4, \"total\": 9}\n{\"step\": 5, \"to", 4, 9},
		"words after it":      {"{\"step\": 4}\nend\n\n", 4, 0},
		"a total below zero":  {`{"step": 4, "total": -9}`, 4, 0},
		"keys of its own":     {`{"step": 4, "loss": 0.5, "name": {"a": [1]}}`, 4, 0},
		"a long line":         {"{\"step\": 3}\n{\"step\": 4, \"text\": \"" + strings.Repeat("x", lineBytes) + "\"}\n", 3, 0},
		"only a longer line":  {`{"step": 4, "text": "` + strings.Repeat("x", 1<<20) + `"}`, -1, 0},
		"bytes":               {"\xff\xfe\x00\x00" + strings.Repeat("\x00", 100_000), -1, 0},
		"many lines":          {strings.Repeat("{\"step\": 1}\n", 10_000) + "{\"step\": 2}\n", 2, 0},
		"nested without end":  {strings.Repeat("[", 4000), -1, 0},
		"the last of the two": {"{\"step\": 9}\n{\"step\": 2}\n", 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			s.now = s.now.Add(time.Second)
			s.write(c.text)
			got := s.feed.Steps(id)
			if c.step < 0 && got != nil || c.step >= 0 && (got == nil || got.Step != c.step || got.Total != c.total) {
				t.Errorf("%v, want step %d of %d", got, c.step, c.total)
			}
		})
	}
}

// TestFileIsKeptSmall: who adds lines for ever fills no disk, and loses nothing of what
// it said.
func TestFileIsKeptSmall(t *testing.T) {
	s := begin(t)
	s.now = s.now.Add(time.Second)
	s.write(strings.Repeat("{\"step\": 1}\n", largeBytes/12+1) + "{\"step\": 2}\n")
	if got := s.feed.Steps(id); got == nil || got.Step != 2 {
		t.Fatalf("%v, want step 2", got)
	}
	if st, err := os.Stat(s.path); err != nil || st.Size() != 0 {
		t.Fatalf("%v, %v: want an empty file", st, err)
	}
	f, err := os.OpenFile(s.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := s.feed.Steps(id); got == nil || got.Step != 2 {
		t.Errorf("of the empty file: %v, want step 2 still", got)
	}
	s.now = s.now.Add(time.Hour)
	if _, err := f.WriteString("{\"step\": 3}\n"); err != nil {
		t.Fatal(err)
	}
	if got := s.feed.Steps(id); got == nil || got.Step != 3 {
		t.Errorf("%v, want step 3", got)
	}
}

// TestOtherFilesAreNotRead: a link, a pipe or a directory in its place is left alone.
func TestOtherFilesAreNotRead(t *testing.T) {
	s := begin(t)
	s.after(time.Second, 1, 2)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte(`{"step": 99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, s.path); err != nil {
		t.Fatal(err)
	}
	if got := s.feed.Steps(id); got == nil || got.Step != 1 {
		t.Errorf("%v, want what the file said", got)
	}
}

// TestAdd: what is said goes with what was used, and without it where nothing was.
func TestAdd(t *testing.T) {
	s := begin(t)
	s.after(time.Second, 5, 9)
	other := &nodev1.AttemptUse{Job: 8, Attempt: 1, PeakMib: 3}
	got := s.feed.Add([]*nodev1.AttemptUse{other})
	if len(got) != 2 || got[0].Steps != nil || got[1].Job != 7 || got[1].Steps.Step != 5 {
		t.Errorf("%v", got)
	}
	got = s.feed.Add([]*nodev1.AttemptUse{{Job: 7, Attempt: 1, PeakMib: 3}})
	if len(got) != 1 || got[0].PeakMib != 3 || got[0].Steps.Total != 9 {
		t.Errorf("%v", got)
	}
}

func FuzzLast(f *testing.F) {
	f.Add([]byte("{\"step\": 1}\n{\"st"))
	f.Fuzz(func(t *testing.T, tail []byte) {
		if l, ok := last(tail); ok && (*l.Step < 0 || *l.Step > cluster.MaxStep) {
			t.Errorf("step %d of %q", *l.Step, tail)
		}
	})
}

// TestTheMetricIsTold: of the lines that say a step the last value of the metric counts,
// also when a later line has none, and what is no number counts for nothing.
func TestTheMetricIsTold(t *testing.T) {
	s := begin(t)
	for _, say := range []struct {
		text string
		want any
	}{
		{"{\"step\": 1}\n", nil},
		{"{\"step\": 2, \"loss\": \"low\"}\n{\"loss\": 3}\n{\"step\": 2, \"loss\": null}\n", nil},
		{"{\"step\": 3, \"loss\": 0.5}\n{\"step\": 4, \"acc\": 1}\n", 0.5},
		{"{\"step\": 5}\n", 0.5},
		{"{\"step\": 6, \"loss\": -2e3}\n{\"step\": 7, \"loss\": 1e999}\n", -2000.0},
	} {
		s.now = s.now.Add(time.Second)
		s.write(say.text)
		var got any
		if m := s.feed.Steps(id).Metric; m != nil {
			got = *m
		}
		if got != say.want {
			t.Errorf("%s: %v, want %v", say.text, got, say.want)
		}
	}
	if got := s.feed.Steps(id); got.Best != -2000 || got.BestStep != 6 {
		t.Errorf("the best is %g at step %d", got.Best, got.BestStep)
	}
	more := cluster.AttemptID{Job: 9, No: 1}
	s.feed.Begin(more, s.path, "loss", true)
	s.now = s.now.Add(time.Second)
	s.write("{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 9}\n{\"step\": 3, \"loss\": 4}\n{\"loss\": 99}\n")
	if got := s.feed.Steps(more); got.Best != 9 || got.BestStep != 2 || *got.Metric != 4 || got.Step != 3 {
		t.Errorf("where more is better: %v", got)
	}
	other := cluster.AttemptID{Job: 8, No: 1}
	s.feed.Begin(other, s.path, "", false)
	if got := s.feed.Steps(other); got == nil || got.Metric != nil {
		t.Errorf("where no metric was asked for: %v", got)
	}
}
