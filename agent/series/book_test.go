package series

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/series"
)

// noon is when the steps of both rings begin.
var noon = time.Unix(1_000_000_200, 0)

// life is an agent's book until end.
type life struct {
	*Book
	log bytes.Buffer
	end func()
}

func begin(t *testing.T, dir string, now time.Time) *life {
	t.Helper()
	l := &life{}
	l.Book = Open(dir, now, slog.New(slog.NewTextHandler(&l.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx)
	}()
	l.end = func() { cancel(); <-done }
	t.Cleanup(l.end)
	return l
}

// shows has a card show the minutes since noon as its memory, from one minute to another.
func (l *life) shows(uuid string, from, to int) {
	for m := from; m < to; m++ {
		for len(l.work) > maxWork/2 { // no disk is as fast as this clock
			runtime.Gosched()
		}
		l.Observe(noon.Add(time.Duration(m)*time.Minute), []gpu.Usage{{UUID: uuid, UsedMiB: int64(m), UtilMilli: 500, PowerW: 100}})
	}
}

func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

func rising(t *testing.T, all []series.Sample) {
	t.Helper()
	for i, m := range all {
		if i > 0 && m.At <= all[i-1].At {
			t.Fatalf("a sample of %d comes after one of %d", m.At, all[i-1].At)
		}
	}
}

// TestBookKeepsAWeek over a restart, and an hour of it closely.
func TestBookKeepsAWeek(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "series")
	const card, minutes = "MIG-GPU-1/0/../3", 8 * 24 * 60
	l := begin(t, dir, noon)
	l.shows(card, 0, minutes)
	got := l.Of(at(minutes), card, noon, at(minutes+100))
	rising(t, got)
	if want := series.CoarseSteps - 1 - 12 + 60; len(got) != want || got[0].UsedMiB != 24*60+9 || got[len(got)-1].UsedMiB != minutes-1 {
		t.Fatalf("%d samples, want %d, from %v to %v", len(got), want, got[0], got[len(got)-1])
	}
	if part := l.Of(at(minutes), card, at(minutes-131), at(minutes-116)); len(part) != 2 || part[0].UsedMiB != minutes-126 || part[1].UsedMiB != minutes-121 {
		t.Errorf("a part: %v", part)
	}
	l.end()
	if info, err := os.Stat(filepath.Join(dir, "MIG-GPU-1%2F0%2F..%2F3.week")); err != nil || info.Mode() != 0o600 || info.Size() > series.CoarseSteps*series.Size {
		t.Fatalf("%v, %v", info, err)
	}

	l = begin(t, dir, at(minutes+2))
	l.shows(card, minutes+2, minutes+3)
	got = l.Of(at(minutes+3), card, noon, at(minutes+3))
	rising(t, got)
	if want := series.CoarseSteps + 1; len(got) != want || got[0].UsedMiB != 24*60+9 || got[len(got)-1].UsedMiB != minutes+2 {
		t.Fatalf("after a restart %d samples, want %d, from %v to %v", len(got), want, got[0], got[len(got)-1])
	}
	if l.Of(at(minutes), "GPU-2", noon, at(minutes)) != nil {
		t.Error("something of a card that never was")
	}
	l.end()

	l = begin(t, dir, at(minutes+9*24*60))
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 || len(l.cards) != 0 {
		t.Errorf("%v of a card that was not seen for a week, %v", files, err)
	}
	if l.log.Len() > 0 {
		t.Errorf("%s", &l.log)
	}
}

// TestBookGoesOnWithinAStep: what the step had before a restart counts.
func TestBookGoesOnWithinAStep(t *testing.T) {
	dir := t.TempDir()
	l := begin(t, dir, noon)
	l.Observe(at(1), []gpu.Usage{{UUID: "a", UsedMiB: 900, UtilMilli: 200}})
	l.end()
	l = begin(t, dir, at(2))
	l.Observe(at(3), []gpu.Usage{{UUID: "a", UsedMiB: 100, UtilMilli: 400}})
	l.end()
	l = begin(t, dir, at(10))
	if got := l.Of(at(10), "a", noon, at(10)); len(got) != 1 || got[0] != (series.Sample{At: noon.Unix(), UsedMiB: 900, UtilMilli: 300}) {
		t.Errorf("%v", got)
	}
}

// TestBookOfDamage takes what is sound of a file, and never fails for what is not.
func TestBookOfDamage(t *testing.T) {
	dir := t.TempDir()
	l := begin(t, dir, noon)
	for _, card := range []string{"ends early", "is noise", "is moved", "is long", "is empty"} {
		l.shows(card, 0, 60)
	}
	l.end()
	first := int(noon.Unix() / 300 % series.CoarseSteps * series.Size)
	change := func(card string, f func([]byte) []byte) {
		path := filepath.Join(dir, strings.ReplaceAll(card, " ", "%20")+suffix)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("ends early", func(b []byte) []byte { return b[:first+3*series.Size+5] })
	change("is noise", func(b []byte) []byte { return bytes.Repeat([]byte{0x9d}, len(b)) })
	change("is moved", func(b []byte) []byte { return append(make([]byte, series.Size), b...) })
	change("is long", func(b []byte) []byte { return append(b, bytes.Repeat([]byte{7}, 1<<20)...) })
	change("is empty", func([]byte) []byte { return nil })
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "linked"+suffix)); err != nil {
		t.Fatal(err)
	}
	l = begin(t, dir, at(60))
	for card, want := range map[string]int{"ends early": 3, "is noise": 0, "is moved": 0, "is long": 12, "is empty": 0} {
		if got := l.Of(at(60), card, noon, at(60)); len(got) != want {
			t.Errorf("%d samples of the card whose file %s, want %d: %v", len(got), card, want, got)
		}
	}
	l.shows("linked", 60, 70)
	l.end()
	if data, err := os.ReadFile(outside); err != nil || len(data) > 0 {
		t.Errorf("a link was followed: %q, %v", data, err)
	}
}

// TestBookWithAnotherClock shows nothing of a time to come, and loses nothing by a clock
// that was wrong for a while.
func TestBookWithAnotherClock(t *testing.T) {
	dir := t.TempDir()
	l := begin(t, dir, noon)
	l.shows("a", 0, 60)
	l.shows("a", 2*24*60, 2*24*60+30) // two days ahead
	l.shows("a", 60, 90)
	check := func(now int) {
		t.Helper()
		got := l.Of(at(now), "a", noon.Add(-time.Hour), at(now+10_000))
		rising(t, got)
		if len(got) == 0 || got[0].At != noon.Unix() || got[len(got)-1].At > at(now).Unix() {
			t.Fatalf("%v", got)
		}
	}
	check(90)
	l.end()
	l = begin(t, dir, time.Unix(100, 0)) // not set yet
	if got := l.Of(time.Unix(100, 0), "a", time.Unix(0, 0), at(100)); len(got) != 0 {
		t.Errorf("in 1970: %v", got)
	}
	check(90)
}

// TestBookIsBounded in cards: those that are gone make room, with their files.
func TestBookIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := begin(t, dir, noon)
	for i := range maxCards + 3 {
		l.shows(fmt.Sprint("old", i), 0, 6)
	}
	l.shows(strings.Repeat("long", 100), 6, 20)
	l.shows("new", 20, 30)
	l.end()
	files, err := os.ReadDir(dir)
	if err != nil || len(l.cards) != maxCards || len(files) != maxCards-1 || l.cards["new"] == nil {
		t.Errorf("%d cards, %d files, %v", len(l.cards), len(files), err)
	}
	names := []string{}
	for _, f := range files {
		names = append(names, f.Name())
	}
	if !slices.Contains(names, "new"+suffix) {
		t.Errorf("%v", names)
	}
}

// TestBookWithoutADisk says so once, and knows what it saw itself.
func TestBookWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	l := begin(t, dir, noon)
	l.shows("a", 0, 60)
	l.end()
	if got := l.Of(at(60), "a", noon, at(60)); len(got) != 60 || strings.Count(l.log.String(), "\n") != 1 {
		t.Errorf("%d samples; %s", len(got), &l.log)
	}
}
