package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/learned"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// signed is a spec for one GPU with a signature.
func signed(sig string) *cluster.Spec {
	s := spec(1)
	s.Signature = sig
	return s
}

// end reports that an attempt completed and was measured.
func (m *machine) completed(id cluster.JobID) {
	m.t.Helper()
	r := m.reportOf(id, cluster.JobCompleted)
	r.Usage = usage(7000, false)
	m.must(reportCmd(r))
}

// newest is the last sample.
func (m *machine) newest() Sample {
	m.t.Helper()
	xs := m.f.Samples()
	if len(xs) == 0 {
		m.t.Fatalf("no sample")
	}
	return xs[len(xs)-1]
}

// TestSamplesSayWithWhom: each entry of the log takes a second.
func TestSamplesSayWithWhom(t *testing.T) {
	t.Parallel()
	at := func(m *machine, sig string, gpu cluster.GPUID) cluster.JobID {
		id := m.submit(signed(sig))
		m.start(id, share1(gpu, 1000, 100))
		return id
	}
	for _, tc := range []struct {
		name string
		run  func(m *machine)
		want []Company
		mode string
	}{
		{"alone", func(m *machine) { m.completed(at(m, "a", "n1-g0")) }, nil, ""},
		{"beside one on another card", func(m *machine) {
			a := at(m, "a", "n1-g0")
			at(m, "b", "n1-g1")
			m.completed(a)
		}, nil, ""},
		{"beside one that goes on", func(m *machine) {
			a := at(m, "a", "n1-g0") // submitted at 0, started at 1
			at(m, "b", "n1-g0")      // started at 3
			m.completed(a)           // at 4
		}, []Company{{Signature: "b", Overlap: time.Second, Milli: 300}}, "sim"},
		{"one after the other of one kind, and another", func(m *machine) {
			a := at(m, "a", "n1-g0")
			m.completed(at(m, "b", "n1-g0")) // one second
			at(m, "c", "n1-g0")              // three seconds until a ends
			m.completed(at(m, "b", "n1-g0")) // one second
			m.completed(a)
		}, []Company{{Signature: "c", Overlap: 4 * time.Second, Milli: 300}, {Signature: "b", Overlap: 2 * time.Second, Milli: 300}}, "sim"},
		{"the shorter ones of many", func(m *machine) {
			a := at(m, "a", "n1-g0")
			for i := range learned.MaxCompany + 2 {
				m.completed(at(m, fmt.Sprintf("b%d", i), "n1-g0"))
			}
			m.completed(a)
		}, []Company{{Signature: "b0", Overlap: time.Second, Milli: 300}, {Signature: "b1", Overlap: time.Second, Milli: 300}, {Signature: "b2", Overlap: time.Second, Milli: 300}, {Signature: "b3", Overlap: time.Second, Milli: 300},
			{Signature: "b4", Overlap: time.Second, Milli: 300}, {Signature: "b5", Overlap: time.Second, Milli: 300}, {Signature: "b6", Overlap: time.Second, Milli: 300}}, "sim"},
		{"too many to know them all", func(m *machine) {
			a := at(m, "a", "n1-g0")
			for range cluster.MaxNeighbours {
				m.completed(at(m, "b", "n1-g0"))
			}
			m.completed(a)
		}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := lab(t)
			tc.run(m)
			x := m.newest()
			if d := cmp.Diff(tc.want, x.Company); d != "" || x.Signature != "a" || x.CapMode != tc.mode {
				t.Errorf("sample of %s, cap mode %q, company %s", x.Signature, x.CapMode, d)
			}
			f := restored(t, snapshotOf(t, m.f))
			if d := cmp.Diff(m.f.Samples(), f.Samples()); d != "" {
				t.Errorf("after a restore: %s", d)
			}
		})
	}
}

// TestCompanyThatIsForgotten: nobody is blamed for what a job did that the
// state no longer knows.
func TestCompanyThatIsForgotten(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 1))
	m.must(registerCmd(node("n1", "boot1", 2)))
	start := func(sig string) cluster.JobID {
		id := m.submit(signed(sig))
		m.start(id, share1("n1-g0", 1000, 100))
		return id
	}
	a := start("a")
	m.completed(start("b"))
	m.completed(start("c")) // b is forgotten
	m.completed(a)
	if x := m.newest(); x.Neighbours != 2 || len(x.Company) != 0 {
		t.Errorf("%+v", x)
	}
}

// TestEntriesOfVersion2SayNothingOfCompany: an old log makes the state that it
// made.
func TestEntriesOfVersion2SayNothingOfCompany(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint32]int{2: 0, 3: 1} {
		m := lab(t)
		id := running(m, spec(1), 8000)
		running(m, spec(1), 8000)
		r := m.reportOf(id, cluster.JobCompleted)
		r.Usage = usage(7000, false)
		data, err := proto.Marshal(&logv1.Entry{Version: version, Term: testTerm, NowUs: int64(m.now.Add(time.Second)), Commands: []*logv1.Command{reportCmd(r)}})
		if err != nil {
			t.Fatal(err)
		}
		applyTo(t, m.f, m.index+1, testTerm, data)
		if x := m.newest(); len(x.Company) != want || (x.CapMode != "") != (want > 0) {
			t.Errorf("version %d: %+v", version, x)
		}
	}
}

func TestInterferenceIsInstalledInOrder(t *testing.T) {
	t.Parallel()
	m := lab(t)
	m.refused(cluster.CodeConflict, interferenceCmd(2, []byte("x")))
	m.refused(cluster.CodeInvalid, interferenceCmd(1, nil))
	m.refused(cluster.CodeInvalid, interferenceCmd(1, make([]byte, maxInterference+1)))
	broken := interferenceCmd(1, []byte("x"))
	broken.GetInstallInterference().Sha256[0] ^= 1
	m.refused(cluster.CodeInvalid, broken)
	m.must(interferenceCmd(1, []byte("first")))
	m.refused(cluster.CodeConflict, interferenceCmd(1, []byte("again")))
	m.must(pinCmd(0, true))
	m.refused(cluster.CodeDenied, interferenceCmd(2, []byte("second")))
	m.must(pinCmd(0, false))
	m.must(interferenceCmd(2, make([]byte, maxInterference)))
	m.must(interferenceCmd(3, []byte("third")))
	f := restored(t, snapshotOf(t, m.f))
	got := f.Interference()
	if got.Version != 3 || string(got.Blob) != "third" || got.Observations != 12 || got.SampleSeq != 9 || got.At == 0 {
		t.Errorf("%+v", got)
	}
}
