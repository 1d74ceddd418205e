package fsm

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestOldFilesAreReadAsTheyWere: entries and snapshots of earlier versions
// give the state, by its hash, that they gave when they were written.
func TestOldFilesAreReadAsTheyWere(t *testing.T) {
	t.Parallel()
	f := New(Options{})
	applyTo(t, f, 1, testTerm, unhex(t, "entry.v1.hex"))
	if got := hex.EncodeToString(f.Hash()); got != "7b682970f0855db8c4075e770666705f50b07f3b71347632533f4b1faca3a3fc" {
		t.Errorf("an entry of version 1 makes a state with hash %s", got)
	}
	old := restored(t, unhex(t, "snapshot.v1.hex")) // which checks the hash
	if v, blob := old.Weights(); v != 1 || string(blob) != "weights" {
		t.Errorf("weights %d %q", v, blob)
	}
	third := New(Options{})
	applyTo(t, third, 1, testTerm, unhex(t, "entry.v3.hex"))
	if got := hex.EncodeToString(third.Hash()); got != "d2a0856dbb71a7fe5981bd837ca8148a9ad48a32ea6b7d4aff3603043dc005d6" {
		t.Errorf("an entry of version 3 makes a state with hash %s", got)
	}
	if third = restored(t, unhex(t, "snapshot.v3.hex")); third.Interference().Version == 0 {
		t.Error("a snapshot of version 3 is read without what was learned of sharing")
	}
	fifth := New(Options{})
	applyTo(t, fifth, 1, testTerm, unhex(t, "entry.v5.hex"))
	if got := hex.EncodeToString(fifth.Hash()); got != "32ef0fd4cea47492447138f3082bfc98d447b1fefca1770bae59717a63c37318" {
		t.Errorf("an entry of version 5 makes a state with hash %s", got)
	}
	if fifth = restored(t, unhex(t, "snapshot.v5.hex")); fifth.EntryVersion() != 5 || len(fifth.Partitions()) == 0 {
		t.Errorf("a snapshot of version 5 is read as one of %d, with %d partitions", fifth.EntryVersion(), len(fifth.Partitions()))
	}
	restored(t, unhex(t, "snapshot.v6.hex"))
	if seventh := restored(t, unhex(t, "snapshot.v7.hex")); seventh.EntryVersion() != 7 {
		t.Errorf("a snapshot of version 7 is read as one of %d", seventh.EntryVersion())
	}
	ninth := New(Options{})
	applyTo(t, ninth, 1, testTerm, unhex(t, "entry.v9.hex"))
	if got := hex.EncodeToString(ninth.Hash()); got != "3264bfc6f2df745c85d25d4ef2e4d9245778304083e4311820e549267c9fc1ef" {
		t.Errorf("an entry of version 9 makes a state with hash %s", got)
	}
	if ninth = restored(t, unhex(t, "snapshot.v9.hex")); ninth.EntryVersion() != 9 {
		t.Errorf("a snapshot of version 9 is read as one of %d", ninth.EntryVersion())
	}
	tenth := New(Options{})
	applyTo(t, tenth, 1, testTerm, unhex(t, "entry.v10.hex"))
	if got := hex.EncodeToString(tenth.Hash()); got != "567c5334f2d6f58775edf35d3422510da3abf927c9f68c5472c8157632ade255" {
		t.Errorf("an entry of version 10 makes a state with hash %s", got)
	}
	if tenth = restored(t, unhex(t, "snapshot.v10.hex")); tenth.EntryVersion() != 10 {
		t.Errorf("a snapshot of version 10 is read as one of %d", tenth.EntryVersion())
	}
	eleventh := New(Options{})
	applyTo(t, eleventh, 1, testTerm, unhex(t, "entry.v11.hex"))
	if got := hex.EncodeToString(eleventh.Hash()); got != "537c5450a1e0bfcbbb68c4eb71cb6c457b1be6a26080cd0448c63c0532c32dd1" {
		t.Errorf("an entry of version 11 makes a state with hash %s", got)
	}
	if eleventh = restored(t, unhex(t, "snapshot.v11.hex")); eleventh.EntryVersion() != 11 {
		t.Errorf("a snapshot of version 11 is read as one of %d", eleventh.EntryVersion())
	}
	if twelfth := restored(t, unhex(t, "snapshot.v12.hex")); twelfth.EntryVersion() != 12 {
		t.Errorf("a snapshot of version 12 is read as one of %d", twelfth.EntryVersion())
	}
	if thirteenth := restored(t, unhex(t, "snapshot.v13.hex")); thirteenth.EntryVersion() != 13 {
		t.Errorf("a snapshot of version 13 is read as one of %d", thirteenth.EntryVersion())
	}
	if fourteenth := restored(t, unhex(t, "snapshot.v14.hex")); fourteenth.EntryVersion() != 14 {
		t.Errorf("a snapshot of version 14 is read as one of %d", fourteenth.EntryVersion())
	}
	if got := v2Hash(t); got != "338a3d1cebcc7c75c8e68dc6d26d76e8586d44b4bb35547f08859d14c8ef5d85" {
		t.Errorf("an entry of version 2 makes a state with hash %s", got)
	}
	second := restored(t, unhex(t, "snapshot.v2.hex"))
	if ws := second.WeightsState(); !ws.Pinned || len(ws.Versions) != 3 || second.Interference().Version != 0 {
		t.Errorf("weights %+v, interference %+v", ws, second.Interference())
	}
	if x := second.Samples(); len(x) == 0 || x[0].At == 0 || len(x[0].Company) != 0 {
		t.Errorf("samples %+v", x)
	}
	if x := old.Samples(); len(x) == 0 || x[0].At != 0 || x[0].Predicted != (cluster.Estimate{}) {
		t.Errorf("samples %+v", x)
	}
}

func v2Hash(t *testing.T) string {
	f := New(Options{})
	applyTo(t, f, 1, testTerm, unhex(t, "entry.v2.hex"))
	return hex.EncodeToString(f.Hash())
}

// TestEntriesOfVersion1KeepTheirMeaning: a log that was written by an older
// leader gives the same samples as there and then.
func TestEntriesOfVersion1KeepTheirMeaning(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint32]Sample{
		1: {Seq: 1, Signature: "sig-1", GPUType: "A100", GPUMemPeakMiB: 90_000, Milli: 400, HostMemMiB: 900, CPUMilli: 1500, UID: 1000, Duration: time.Second},
		2: {},
	} {
		m := lab(t)
		id := running(m, spec(1), 8000)
		r := m.reportOf(id, cluster.JobCompleted)
		r.Usage = usage(90_000, false) // more than the card has
		data, err := proto.Marshal(&logv1.Entry{Version: version, Term: testTerm, NowUs: int64(m.now.Add(time.Second)), Commands: []*logv1.Command{reportCmd(r)}})
		if err != nil {
			t.Fatal(err)
		}
		rs := applyTo(t, m.f, m.index+1, testTerm, data)
		m.wantState(id, cluster.JobCompleted)
		got := m.f.Samples()
		if version == 1 && (len(got) != 1 || !cmp.Equal(got[0], want) || rs[0].Absurd) || version == 2 && (len(got) != 0 || !rs[0].Absurd) {
			t.Errorf("version %d: %+v, absurd %t", version, got, rs[0].Absurd)
		}
	}
}
