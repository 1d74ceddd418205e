package attempt_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func xid(code int, a health.Action, when int) health.Fault {
	return health.Fault{At: at(when), UUID: "g", Xid: health.Xid{Code: code, Text: "text", Action: a}}
}

func faultsOf(fs ...health.Fault) (all attempt.Faults) {
	for _, f := range fs {
		all.Add(f)
	}
	return all
}

// TestFaultsAreKept: each kind once; of those that only the application causes
// eight, and of the hardware's all.
func TestFaultsAreKept(t *testing.T) {
	t.Parallel()
	var fs attempt.Faults
	if !fs.Add(xid(1, health.Record, 5)) || fs.Add(xid(1, health.Record, 6)) || len(fs) != 1 || fs[0].Times != 2 {
		t.Errorf("twice the same: %+v", fs)
	}
	if fs.Add(xid(1, health.Record, 7)); fs[0].Times != 3 {
		t.Errorf("thrice the same: %+v", fs)
	}
	other := xid(1, health.Record, 7)
	if other.UUID = "h"; !fs.Add(other) || len(fs) != 2 {
		t.Errorf("of another card: %+v", fs)
	}
	fs = fs[:1]
	lost := xid(1, health.End, 7)
	lost.Lost = true
	if !fs.Add(lost) || len(fs) != 2 {
		t.Errorf("another: %+v", fs)
	}
	for code := range 20 {
		fs.Add(xid(100+code, health.Record, 7))
	}
	if len(fs) != 8 {
		t.Errorf("%d of the application are kept, want 8", len(fs))
	}
	if fs.Add(xid(200, health.Drain, 8)); len(fs) != 9 {
		t.Errorf("%d with one of the hardware, want 9", len(fs))
	}
}

// TestCause: of what ends an attempt that runs since 0 s.
func TestCause(t *testing.T) {
	t.Parallel()
	server := &attempt.ServerFault{}
	for name, c := range map[string]struct {
		faults attempt.Faults
		server *attempt.ServerFault
		want   attempt.Cause
	}{
		"nothing":                       {nil, nil, attempt.NoCause},
		"what only takes no more":       {faultsOf(xid(1, health.Drain, 5)), nil, attempt.NoCause},
		"a card that is gone":           {faultsOf(xid(1, health.Drain, 5), xid(2, health.End, 5)), nil, attempt.CardGone},
		"a card that was before":        {faultsOf(xid(2, health.End, -2)), nil, attempt.NoCause},
		"clocks a second apart":         {faultsOf(xid(2, health.End, -1)), nil, attempt.CardGone},
		"its server":                    {nil, server, attempt.CardFault},
		"the card comes before servers": {faultsOf(xid(2, health.End, 5)), server, attempt.CardGone},
	} {
		if got := c.faults.Cause(life(nil), c.server); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestBlame: of an attempt that ran from 0 s to 50 s.
func TestBlame(t *testing.T) {
	t.Parallel()
	hard, soft := xid(79, health.Drain, 40), xid(13, health.Record, 30)
	hardWords, softWords := hard.String(), soft.String()
	for name, c := range map[string]struct {
		faults attempt.Faults
		state  nodev1.AttemptState
		cause  attempt.Cause
		cards  int
		want   nodev1.AttemptState
		detail string // "was" where nothing changes
	}{
		"nothing befell it":             {nil, failed, attempt.NoCause, 1, failed, "was"},
		"the hardware":                  {faultsOf(soft, hard), failed, attempt.NoCause, 1, lost, "GPU g: " + hardWords + "; it ended with exit code 3"},
		"the hardware, at its limit":    {faultsOf(hard), timeout, attempt.TimeLimit, 1, lost, "GPU g: " + hardWords + "; it ended with exit code 3"},
		"the hardware, before":          {faultsOf(xid(79, health.Drain, -2)), failed, attempt.NoCause, 1, failed, "was"},
		"the hardware, after":           {faultsOf(xid(79, health.Drain, 52)), failed, attempt.NoCause, 1, failed, "was"},
		"within a second after":         {faultsOf(xid(79, health.Drain, 51)), failed, attempt.NoCause, 1, lost, "GPU g: " + xid(79, health.Drain, 51).String() + "; it ended with exit code 3"},
		"the first of two":              {faultsOf(hard, xid(48, health.Drain, 41)), failed, attempt.NoCause, 1, lost, "GPU g: " + hardWords + "; it ended with exit code 3"},
		"its own, and it went well":     {faultsOf(soft), completed, attempt.CardGone, 1, completed, "was"},
		"it went well all the same":     {faultsOf(hard), completed, attempt.NoCause, 1, completed, "was"},
		"it was ended for it, and well": {faultsOf(hard), completed, attempt.CardGone, 1, lost, "GPU g: " + hardWords + "; it ended with exit code 3"},
		"it was cancelled":              {faultsOf(hard), cancelled, attempt.Asked, 1, cancelled, "was; its GPU reported " + hardWords},
		"itself":                        {faultsOf(soft), failed, attempt.NoCause, 1, failed, "was; its GPU reported " + softWords},
		"itself, twice":                 {faultsOf(soft, soft), failed, attempt.NoCause, 1, failed, "was; its GPU reported " + softWords + " (2 times)"},
		"one of its cards":              {faultsOf(soft), failed, attempt.NoCause, 2, failed, "was; GPU g reported " + softWords},
	} {
		r := &nodev1.Report{State: c.state, Detail: "was", Exit: &nodev1.Exit{Code: 3}, Started: timestamppb.New(at(0)), Ended: timestamppb.New(at(50))}
		changed := c.faults.Blame(r, attempt.Life{Cause: c.cause}, c.cards)
		if r.State != c.want || r.Detail != c.detail || changed != (c.detail != "was") || (r.Reason == "GPUFault") != (c.want == lost) {
			t.Errorf("%s: %v, %v, want %s %q", name, changed, r, c.want, c.detail)
		}
		if c.faults.Blame(r, attempt.Life{Cause: c.cause}, c.cards) {
			t.Errorf("%s: it is said twice: %v", name, r)
		}
	}
	bySignal := &nodev1.Report{State: failed, Exit: &nodev1.Exit{Code: 137, Signal: 9}, Ended: timestamppb.New(at(50))}
	if faultsOf(hard).Blame(bySignal, attempt.Life{Started: at(39).Add(time.Second)}, 1); bySignal.Detail != "GPU g: "+hardWords+"; it ended by signal 9" {
		t.Errorf("by a signal: %v", bySignal)
	}
}
