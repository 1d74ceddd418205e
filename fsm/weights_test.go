package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func versionsOf(f *FSM) (out []uint64) {
	for _, v := range f.WeightsState().Versions {
		out = append(out, v.Version)
	}
	return out
}

func TestInstallKeepsTheLastEight(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if ws := m.f.WeightsState(); len(ws.Versions) != 0 || ws.Pinned {
		t.Fatalf("%+v before any", ws)
	}
	for i := range uint64(12) {
		m.must(installCmd(i+1, WeightsLearned, fmt.Appendf(nil, "w%d", i+1)))
	}
	if d := cmp.Diff([]uint64{12, 11, 10, 9, 8, 7, 6, 5}, versionsOf(m.f)); d != "" {
		t.Fatal(d)
	}
	got := m.f.WeightsState().Versions[0]
	want := WeightsVersion{
		Version: 12, Blob: []byte("w12"), SHA256: got.SHA256, At: m.now, Source: WeightsLearned, By: 7, Trained: 400, Tested: 100,
		ErrBeforePPM: 81_000, ErrAfterPPM: 42_000, Reason: "half the error", SampleSeq: 9,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if again := restored(t, snapshotOf(t, m.f)); cmp.Diff(m.f.WeightsState(), again.WeightsState()) != "" {
		t.Errorf("restored: %+v", again.WeightsState())
	}
}

func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(installCmd(1, WeightsImport, []byte("a")))
	edit := func(f func(c *logv1.InstallWeights)) *logv1.Command {
		c := installCmd(2, WeightsLearned, []byte("b"))
		f(c.GetInstallWeights())
		return c
	}
	for name, tc := range map[string]struct {
		cmd  *logv1.Command
		want cluster.Code
	}{
		"a version that is not the next": {installCmd(3, WeightsLearned, []byte("b")), cluster.CodeConflict},
		"the version in use":             {installCmd(1, WeightsLearned, []byte("b")), cluster.CodeConflict},
		"nothing":                        {installCmd(2, WeightsLearned, nil), cluster.CodeInvalid},
		"too much":                       {installCmd(2, WeightsLearned, bytes.Repeat([]byte{1}, maxWeights+1)), cluster.CodeInvalid},
		"a wrong checksum":               {edit(func(c *logv1.InstallWeights) { c.Sha256[0]++ }), cluster.CodeInvalid},
		"no origin":                      {edit(func(c *logv1.InstallWeights) { c.Origin = nil }), cluster.CodeInvalid},
		"an unknown source":              {installCmd(2, "guess", []byte("b")), cluster.CodeInvalid},
		"a rollback in disguise":         {installCmd(2, WeightsRollback, []byte("b")), cluster.CodeInvalid},
		"a negative error":               {edit(func(c *logv1.InstallWeights) { c.Origin.ChallengerErrPpm = -1 }), cluster.CodeInvalid},
		"a long reason":                  {edit(func(c *logv1.InstallWeights) { c.Origin.Reason = strings.Repeat("x", 257) }), cluster.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			m.t = t
			m.refused(tc.want, tc.cmd)
		})
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	m := lab(t)
	m.refused(cluster.CodeNotFound, rollbackCmd(1, 0))
	m.must(installCmd(1, WeightsLearned, []byte("good")))
	m.must(installCmd(2, WeightsLearned, []byte("bad")))
	m.refused(cluster.CodeConflict, rollbackCmd(3, 2)) // in use
	m.refused(cluster.CodeConflict, rollbackCmd(2, 1)) // somebody was faster
	m.refused(cluster.CodeNotFound, rollbackCmd(3, 7))
	m.must(rollbackCmd(3, 1))
	got := m.f.WeightsState().Versions
	if len(got) != 3 || got[0].Version != 3 || string(got[0].Blob) != "good" || got[0].RolledBackTo != 1 || got[0].By != 8 ||
		got[0].Source != WeightsRollback || got[0].Trained != 400 {
		t.Fatalf("%+v", got)
	}
	if v, blob := m.f.Weights(); v != 3 || string(blob) != "good" {
		t.Errorf("in use: %d %q", v, blob)
	}
}

// TestAKeptVersionCanBeRolledBackToUntilItIsForgotten: the oldest goes as the
// rollback comes, and is in use all the same.
func TestAKeptVersionCanBeRolledBackToUntilItIsForgotten(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for i := range uint64(keptWeights) {
		m.must(installCmd(i+1, WeightsLearned, fmt.Appendf(nil, "w%d", i+1)))
	}
	m.must(rollbackCmd(keptWeights+1, 1))
	if _, blob := m.f.Weights(); string(blob) != "w1" || len(versionsOf(m.f)) != keptWeights {
		t.Errorf("in use %q, kept %v", blob, versionsOf(m.f))
	}
	m.refused(cluster.CodeNotFound, rollbackCmd(keptWeights+2, 1))
}

func TestPin(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(pinCmd(0, true)) // the built-in ones may be pinned
	m.refused(cluster.CodeDenied, installCmd(1, WeightsLearned, []byte("a")))
	m.must(installCmd(1, WeightsImport, []byte("a"))) // an administrator may
	m.refused(cluster.CodeConflict, pinCmd(0, true))
	ws := m.f.WeightsState()
	if !ws.Pinned || ws.PinnedBy != 9 || ws.PinnedAt != t0.Add(1e9) {
		t.Fatalf("%+v", ws)
	}
	m.must(pinCmd(1, true)) // who pinned first stays on record
	if again := m.f.WeightsState(); again.PinnedAt != ws.PinnedAt {
		t.Errorf("%+v", again)
	}
	if r := restored(t, snapshotOf(t, m.f)); !r.WeightsState().Pinned {
		t.Error("the pin is gone after a restore")
	}
	m.must(pinCmd(0, false))
	m.must(pinCmd(0, false))
	m.must(installCmd(2, WeightsLearned, []byte("b")))
	if m.f.WeightsState().Pinned {
		t.Error("still pinned")
	}
}

// TestOldPublishKeepsNothing: PublishWeights of old logs means what it meant.
func TestOldPublishKeepsNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(weightsCmd(1, []byte("a")))
	m.must(weightsCmd(2, []byte("b")))
	if d := cmp.Diff([]uint64{2}, versionsOf(m.f)); d != "" {
		t.Fatal(d)
	}
	m.must(installCmd(3, WeightsLearned, []byte("c")))
	if d := cmp.Diff([]uint64{3, 2}, versionsOf(m.f)); d != "" {
		t.Fatal(d)
	}
}
