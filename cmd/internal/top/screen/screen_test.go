package screen_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	"github.com/berth-scheduler/berth/cmd/internal/top/screen"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

var _ = draws.Fixed()

// colours are the sequences that the screen may write, and no others.
var colours = regexp.MustCompile("\x1b\\[[0-9]*m")

// sampleJobs are those of clitest, an array of which three tasks run, and a job with
// the longest name there could be.
func sampleJobs() []*apiv1.Job {
	jobs := clitest.SampleJobs()
	for i := range uint32(3) {
		jobs = append(jobs, &apiv1.Job{
			Id: 30 + uint64(i), ArrayJobId: 30, ArrayTaskId: &i, Name: "sweep", User: "ann", Uid: 1001, State: "RUNNING", Node: "n4", GpusWanted: 1,
			Gpus:    []*apiv1.GPUShare{{Uuid: fmt.Sprintf("GPU-4%d", i/2), Type: "A100-SXM4-80GB", Index: i / 2, Share: &apiv1.Share{MemMib: 20480, Milli: 300}}},
			Started: clitest.Ago(10 * time.Minute), Submitted: clitest.Ago(11 * time.Minute),
		})
	}
	return append(jobs,
		&apiv1.Job{
			Id: 129, ArrayJobId: 30, ArrayTaskId: new(uint32(99)), ArrayTasks: "3-99", ArrayCount: 97, Name: "sweep", User: "ann", Uid: 1001, State: "PENDING", GpusWanted: 1,
			Reason: "ArrayTaskLimit", Submitted: clitest.Ago(11 * time.Minute), EstimatedStart: timestamppb.New(clitest.Now.Add(40 * time.Minute)),
		},
		&apiv1.Job{Id: 17, Name: strings.Repeat("ü界", 1024), User: "bob\xff", Uid: 1009, State: "PENDING", Reason: "Priority", Submitted: clitest.Ago(time.Minute)})
}

func sampleNodes() []*apiv1.Node {
	nodes := clitest.SampleNodes()
	nodes[0].History = []*apiv1.NodeEvent{{At: clitest.Ago(2 * time.Hour), Kind: "drained", Detail: "GPU 1 reports ECC errors"}}
	n4 := &apiv1.Node{Id: "n4", State: "ready", CpuMilli: 64000, MemMib: 262144, CpuUsedMilli: 12000, MemUsedMib: 32768, Jobs: []uint64{30, 31, 32}}
	for i := range uint32(2) {
		g := &apiv1.GPU{
			Uuid: fmt.Sprintf("GPU-4%d", i), Index: i, Type: "A100-SXM4-80GB", MemMib: 81920, SellableMib: 80000, LedgerUsedMib: 40960, LedgerUsedMilli: 600, Shares: 2, MaxShares: 3,
			CapMode: "mps", MeasuredUsedMib: 30720, MeasuredUtilMilli: 730, Jobs: []uint64{30, 31}, PowerW: 287, TemperatureC: 61, State: "ok",
		}
		if i == 1 {
			g.LedgerUsedMib, g.LedgerUsedMilli, g.Shares, g.Jobs, g.MeasuredUsedMib, g.MeasuredUtilMilli = 20480, 300, 1, []uint64{32}, 30000, 250
		}
		n4.Gpus = append(n4.Gpus, g)
	}
	return append(nodes, n4)
}

// told is a screen that was told of the sample cluster for some minutes.
func told(cfg screen.Config, width, height int) *screen.Screen {
	return toldFor(cfg, width, height, 5*time.Minute)
}

func toldFor(cfg screen.Config, width, height int, long time.Duration) *screen.Screen {
	cfg.Me, cfg.Now = "ann", clitest.Now.Add(-long)
	s := screen.New(cfg)
	s.Update(screen.Size{Width: width, Height: height})
	s.Update(screen.Cluster{Name: "lab"})
	s.Update(screen.Jobs{All: true, Jobs: sampleJobs()})
	nodes := sampleNodes()
	for at := cfg.Now; !at.After(clitest.Now); at = at.Add(screen.Every) {
		for _, n := range nodes {
			for _, g := range n.Gpus {
				if g.MeasuredUtilMilli >= 0 {
					g.MeasuredUtilMilli = (g.MeasuredUtilMilli*7 + int64(at.Unix())*13) % 1000
				}
			}
		}
		s.Update(screen.Tick{At: at})
		s.Update(screen.Nodes{Nodes: nodes, History: true})
	}
	f := clitest.NewFake()
	resp, _ := f.ListStanding(context.Background(), nil)
	s.Update(screen.Standing{Resp: resp})
	ended := clitest.SampleJobs()[0]
	ended.State, ended.Ended, ended.Revision = "COMPLETED", timestamppb.New(clitest.Now), ended.Revision+1
	s.Update(screen.Jobs{Jobs: []*apiv1.Job{ended, {Id: 200, Name: "late", User: "bob", Uid: 1002, State: "PENDING", Submitted: clitest.Ago(0)}}})
	return s
}

// press presses keys by their names.
func press(s *screen.Screen, keys ...string) (asks []any) {
	for _, k := range keys {
		text := ""
		if len(k) == 1 {
			text = k
		}
		asks = append(asks, s.Update(screen.Key{Name: k, Text: text})...)
	}
	return asks
}

// detail answers what the screen wants to know of the job that it looks at.
func detail(s *screen.Screen, job string) {
	s.Update(screen.Why{Job: job, Text: "Job 14 (eval) waits, place 1 in the queue of GPU-1a: GPUMemory\n  2 × GPUMemory: most free: GPU 1 of n1 with 11.2 GiB, needs 13.0 GiB\nExpected start: between 15:34 and 15:57\n"})
	s.Update(screen.Log{Job: job, Data: []byte("epoch 1\n\x1b[31mloss 0.7\x1b[m\r\n10%\r50%\r100%\n\x1b]0;title\x07bell\x07 \xff end\n\x1b[2J\x9b31mhalf a li")})
}

// TestScreens compares whole screens with what they were, colours left out.
func TestScreens(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ width, height int }{{80, 24}, {200, 50}} {
		for name, keys := range map[string][]string{
			"jobs": nil, "jobs-unfolded": {"home", "space"}, "jobs-ended": {"a", "s"}, "jobs-mine": {"m"}, "gpus": {"2"}, "gpu": {"2", "j", "j", "enter"}, "nodes": {"3"}, "node": {"3", "enter"},
			"users": {"4"}, "events": {"5"}, "help": {"?"}, "filter": {"/", "n", "1"}, "job": {"home", "j", "j", "enter"}, "log": {"home", "j", "j", "l"}, "cancel": {"d"}, "drain": {"3", "D", "E", "C", "C"},
		} {
			s := told(screen.Config{}, size.width, size.height)
			for _, ask := range press(s, keys...) {
				if look, ok := ask.(screen.Look); ok {
					detail(s, look.Job)
				}
			}
			golden.Check(t, fmt.Sprintf("%s-%dx%d", name, size.width, size.height), bare(t, s.View(), size.width, size.height))
		}
	}
	s := told(screen.Config{ASCII: true, Plain: true, Tab: screen.TabGPUs}, 80, 24)
	golden.Check(t, "ascii-80x24", bare(t, s.View(), 80, 24))
	s = screen.New(screen.Config{Now: clitest.Now})
	golden.Check(t, "nothing-yet-80x24", bare(t, s.View(), 80, 24))
	s = told(screen.Config{}, 80, 24)
	s.Update(screen.Link{Of: "nodes", Err: "no coordinator answers; tried: /a: connection refused"})
	s.Update(screen.Tick{At: clitest.Now.Add(12 * time.Second)})
	golden.Check(t, "lost-80x24", bare(t, s.View(), 80, 24))
	s.Update(screen.Link{Of: "nodes"})
	if strings.Contains(s.View(), "no answer") {
		t.Error("a coordinator that is back is said to be lost")
	}
}

// bare checks that a screen has its size and no sequence but colours, and returns it
// without them and without spaces at the end of lines.
func bare(t rapid.TB, view string, width, height int) string {
	t.Helper()
	text := colours.ReplaceAllString(view, "")
	lines := strings.Split(text, "\n")
	if len(lines) != height {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), height, text)
	}
	for i, line := range lines {
		if w := console.TextWidth(line); w > width {
			t.Fatalf("line %d has %d columns of %d: %q", i, w, width, line)
		}
		if console.Escape(line) != line {
			t.Fatalf("line %d may steer a terminal: %q", i, line)
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestPlain: without colours there are none, and what is drawn in ASCII is ASCII.
func TestPlain(t *testing.T) {
	t.Parallel()
	for _, tab := range []string{"1", "2", "3", "4", "5"} {
		s := told(screen.Config{ASCII: true, Plain: true}, 120, 40)
		press(s, tab, "enter")
		view := s.View()
		for _, seq := range colours.FindAllString(view, -1) {
			if !strings.Contains(" \x1b[m \x1b[1m \x1b[2m \x1b[7m ", " "+seq+" ") {
				t.Errorf("tab %s is coloured: %q", tab, seq)
			}
		}
		for _, r := range view {
			if r >= 0x80 {
				t.Errorf("tab %s has %q", tab, r)
				break
			}
		}
	}
}

// TestBounds: whatever comes and is typed, a screen has its size, and nothing in it
// steers the terminal.
func TestBounds(t *testing.T) {
	t.Parallel()
	nasty := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"\x1b[2J", "\x1b]0;x\x07", strings.Repeat("長", 4096), strings.Repeat("\x1b[31m", 700), "\u202e\u200d\u0301", "a\nb\tc\r"}))
	keys := rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "tab", "up", "down", "pgup", "pgdown", "home", "end", "enter", "esc", "s", "r", "m", "a", "space", "l", "e", "d", "D", "y", "n", "/", "backspace", "?", "paste"})
	rapid.Check(t, func(t *rapid.T) {
		width, height := rapid.IntRange(1, 220).Draw(t, "width"), rapid.IntRange(1, 60).Draw(t, "height")
		s := toldFor(screen.Config{ASCII: rapid.Bool().Draw(t, "ascii"), Plain: rapid.Bool().Draw(t, "plain")}, width, height, 4*screen.Every)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			text := nasty.Draw(t, "text")
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				s.Update(screen.Jobs{Jobs: []*apiv1.Job{{Id: rapid.Uint64Range(1, 40).Draw(t, "id"), Name: text, User: text, State: text, Node: text, Reason: text, Partition: text, Account: text, Revision: 1 << 40}}})
			case 1:
				s.Update(screen.Nodes{Nodes: []*apiv1.Node{{Id: text, State: text, DrainReason: text, Drain: true, History: []*apiv1.NodeEvent{{Kind: text, Detail: text}},
					Gpus: []*apiv1.GPU{{Uuid: text, Type: text, StateReason: text, State: text, MemMib: rapid.Int64().Draw(t, "mem"), LedgerUsedMib: rapid.Int64().Draw(t, "used"), Jobs: []uint64{12, 1 << 50}, MeasuredUsedMib: rapid.Int64().Draw(t, "measured")}}}}, History: true})
			case 2:
				s.Update(screen.Note{Text: text})
			case 3:
				s.Update(screen.Link{Of: "jobs", Err: text})
			default:
				for _, ask := range s.Update(screen.Key{Name: keys.Draw(t, "key"), Text: text}) {
					if look, ok := ask.(screen.Look); ok {
						s.Update(screen.Why{Job: look.Job, Text: text})
						s.Update(screen.Log{Job: look.Job, Data: []byte(text), End: text})
					}
				}
			}
			bare(t, s.View(), width, height)
		}
	})
}

// TestAsks: keys want done what they say, and what is destroyed only after a question.
func TestAsks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		keys []string
		want string // the last that is asked for
		note string
	}{
		"cancel an array":        {[]string{"home", "d", "y"}, "{[cancel 30]}", ""},
		"cancel, not":            {[]string{"d", "n"}, "", ""},
		"cancel some tasks":      {[]string{"/", "3", "0", "enter", "home", "space", "end", "d", "y"}, "{[cancel 30_[3-99]]}", ""},
		"shell":                  {[]string{"/", "s", "w", "enter", "m", "home", "space", "j", "e"}, "{30_0}", ""},
		"shell in an array":      {[]string{"home", "e"}, "", "unfold the array"},
		"shell in a waiting job": {[]string{"end", "e"}, "", "is not running (PENDING)"},
		"drain a node":           {[]string{"3", "home", "D", "b", "a", "d", "enter"}, "{[node drain n1 --reason=bad]}", ""},
		"drain without a reason": {[]string{"3", "D", "enter"}, "", "a reason is required"},
		"drain, not":             {[]string{"3", "D", "x", "esc"}, "", ""},
		"resume a node":          {[]string{"3", "home", "j", "D", "y"}, "{[node resume n2]}", ""},
		"drain a GPU":            {[]string{"2", "home", "D", "x", "enter"}, "{[gpu drain n1/0 --reason=x]}", ""},
		"drain a job":            {[]string{"D"}, "", "select one of the GPUs"},
		"cancel a node":          {[]string{"3", "d"}, "", "select one of the jobs"},
		"details":                {[]string{"home", "j", "enter"}, "{13}", ""},
		"details of an array":    {[]string{"home", "enter"}, "{30}", ""},
		"no more details":        {[]string{"home", "enter", "esc"}, "{}", ""},
		"details of another tab": {[]string{"home", "enter", "2"}, "{}", ""},
		"log":                    {[]string{"home", "j", "l"}, "{13}", ""},
		"leave":                  {[]string{"q"}, "{}", ""},
		"leave while asked":      {[]string{"/", "ctrl+c"}, "{}", ""},
		"q is typed where asked": {[]string{"/", "q"}, "", ""},
		"a job that has ended":   {[]string{"a", "end", "d"}, "", "has ended"},
	} {
		s := told(screen.Config{}, 100, 30)
		asks := press(s, tc.keys...)
		got := ""
		if len(asks) > 0 {
			got = fmt.Sprint(asks[len(asks)-1])
		}
		if got != tc.want {
			t.Errorf("%s: asked for %s, want %s", name, got, tc.want)
		}
		if foot := colours.ReplaceAllString(s.View(), ""); tc.note != "" && !strings.Contains(foot, tc.note) {
			t.Errorf("%s: no %q below\n%s", name, tc.note, foot)
		}
	}
}

// TestArrays: a task is listed once, whether by itself or among others, in whatever
// order the news come.
func TestArrays(t *testing.T) {
	t.Parallel()
	task := func(id uint64, tasks string, count, last uint32, state string, revision uint64) *apiv1.Job {
		return &apiv1.Job{Id: id, ArrayJobId: 5, ArrayTaskId: &last, ArrayTasks: tasks, ArrayCount: count, State: state, Name: "a", User: "ann", Revision: revision}
	}
	s := screen.New(screen.Config{Now: clitest.Now})
	has := func(want string) {
		t.Helper()
		if view := s.View(); !strings.Contains(view, want) {
			t.Errorf("no %q in\n%s", want, view)
		}
	}
	s.Update(screen.Jobs{All: true, Jobs: []*apiv1.Job{task(14, "0-9", 10, 9, "PENDING", 1)}})
	has("0 running, 10 waiting")
	s.Update(screen.Jobs{Jobs: []*apiv1.Job{task(5, "", 0, 0, "RUNNING", 2), task(14, "1-9", 9, 9, "PENDING", 2)}})
	has("1 running, 9 waiting")
	has("1 R, 9 PD")
	// Task 9 is held by itself, and let go.
	s.Update(screen.Jobs{Jobs: []*apiv1.Job{task(14, "", 0, 9, "PENDING", 3), task(13, "1-8", 8, 8, "PENDING", 3)}})
	has("1 running, 9 waiting")
	s.Update(screen.Jobs{Jobs: []*apiv1.Job{task(14, "1-9", 9, 9, "PENDING", 4)}})
	has("1 running, 9 waiting")
	// What a coordinator that is behind says does not count.
	s.Update(screen.Jobs{Jobs: []*apiv1.Job{task(5, "", 0, 0, "PENDING", 1)}})
	has("1 running, 9 waiting")
	s.Update(screen.Jobs{All: true, Jobs: []*apiv1.Job{{Id: 90, State: "RUNNING"}}})
	has("1 running, 0 waiting")
}

// TestMany: of jobs that end no more are kept than is good.
func TestMany(t *testing.T) {
	t.Parallel()
	s := screen.New(screen.Config{Now: clitest.Now})
	press(s, "a")
	for i := range 5000 {
		s.Update(screen.Jobs{Jobs: []*apiv1.Job{{Id: uint64(i + 1), State: "COMPLETED", Ended: timestamppb.New(clitest.Now.Add(time.Duration(i) * time.Second))}}})
	}
	press(s, "end")
	if view := s.View(); strings.Contains(view, "\n1 ") || !strings.Contains(view, "39") {
		t.Errorf("the end of the list:\n%s", view)
	}
}
