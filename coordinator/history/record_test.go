package history

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/cluster"
)

// TestRecordKeeps: a record has all of a job but for what is left out on purpose.
func TestRecordKeeps(t *testing.T) {
	t.Parallel()
	array, err := cluster.ParseArray("3-9:2")
	if err != nil {
		t.Fatal(err)
	}
	plain := finished(7, 20)
	task := finished(8, 21)
	task.ArrayJobID, task.ArrayTaskID, task.Spec.Array = 20, 5, array
	folded := finished(9, 23)
	folded.ArrayJobID, folded.ArrayTaskID, folded.Spec.Array, folded.Fold = 20, 9, array, []cluster.Span{{From: 0, To: 0}, {From: 2, To: 3}}
	for _, j := range []*cluster.Job{plain, task, folded} {
		b, err := Record(j)
		if err != nil {
			t.Fatal(err)
		}
		got, err := JobOf(b)
		if err != nil {
			t.Fatal(err)
		}
		want, spec := *j, *j.Spec
		want.Spec, want.Estimates = &spec, nil
		spec.Env, spec.Script, spec.Features = nil, nil, nil
		if j.Fold == nil {
			spec.Array = nil
		}
		if d := cmp.Diff(&want, got, cmpopts.EquateEmpty(), cmp.AllowUnexported(cluster.Tasks{}, cluster.TaskRun{})); d != "" {
			t.Errorf("job %s (-want +got):\n%s", j.Label(), d)
		}
		if got.Label() != j.Label() || got.Count() != j.Count() {
			t.Errorf("is called %s and stands for %d", got.Label(), got.Count())
		}
	}
}

// TestRecordIsBounded: a job of hundreds of attempts on hundreds of nodes fits,
// its last attempt whole.
func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	j := finished(9, 9)
	a := j.Attempts[0]
	a.Gang = &cluster.Gang{}
	for i := range cluster.MaxNodes {
		a.Gang.Parts = append(a.Gang.Parts, cluster.Part{State: cluster.JobFailed, BootID: a.BootID, Usage: a.Usage})
		if i > 0 {
			a.Gang.Rest = append(a.Gang.Rest, a.Berth)
		}
	}
	j.Attempts = nil
	for i := range 300 {
		a.No = uint32(i) + 1
		j.Attempts = append(j.Attempts, a)
	}
	b, err := Record(j)
	if err != nil || len(b) > maxRecord {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	got, err := JobOf(b)
	if err != nil || len(got.Attempts) != 300 || got.Last().Nodes() != cluster.MaxNodes {
		t.Fatalf("%v", err)
	}
	row, err := entryOf(j)
	if err != nil {
		t.Fatal(err)
	}
	if again := RowOf(got); row.row != again {
		t.Fatalf("the row of the record is another one: %+v and %+v", row.row, again)
	}
}

// TestRowSurvives: what is written of a row is read back.
func TestRowSurvives(t *testing.T) {
	t.Parallel()
	want := RowOf(finished(77, 4242))
	want.ArrayJob, want.ArrayTask, want.Tasks, want.Account, want.QOS = 4000, 242, 3, "vision", "high"
	es := []entry{{row: want}}
	rows, texts := encodeRows(es)
	r, names := reader{b: texts}, []string(nil)
	for len(r.b) > 0 {
		names = append(names, string(r.bytes()))
	}
	var got Row
	if err := got.get(rows, func(i uint32) string { return names[i] }); err != nil {
		t.Fatal(err)
	}
	want.Used = want.Used.Truncate(1e6)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func FuzzFrame(f *testing.F) {
	rec, err := Record(finished(3, 3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add((&frame{upTo: 3, records: [][]byte{rec}}).encode(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, _, err := decodeFrame(b)
		if err == nil {
			_, _ = entriesOf(fr.records, 0, fr.upTo)
		}
		_, _ = JobOf(b)
	})
}

func FuzzSegmentFooter(f *testing.F) {
	data, _, err := encodeSegment(0, 3, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[len(data)-footerBytes:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == footerBytes {
			_ = (&segment{size: 1 << 20}).parse(b)
		}
	})
}
