package journal

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func begin(t *testing.T, j *Journal, job uint64) {
	t.Helper()
	if err := j.Begin(&nodev1.Assignment{Job: job, Attempt: 1, Token: 10 * job, Name: "x"}); err != nil {
		t.Fatal(err)
	}
}

func TestJournalRemembersAcrossARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, 1)
	begin(t, j, 2)
	begin(t, j, 3)
	end := &nodev1.Report{Job: 2, Attempt: 1, Exit: &nodev1.Exit{Code: 7}}
	if err := j.End(end); err != nil {
		t.Fatal(err)
	}
	if err := j.Forget(cluster.AttemptID{Job: 3, No: 1}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second opening reads what the first one rewrote
		j = open(t, dir)
		recs := j.Records()
		if len(recs) != 2 || recs[cluster.AttemptID{Job: 1, No: 1}].End != nil {
			t.Fatalf("records %v", recs)
		}
		if diff := cmp.Diff(end, recs[cluster.AttemptID{Job: 2, No: 1}].End, protocmp.Transform()); diff != "" {
			t.Errorf("end (-want +got):\n%s", diff)
		}
		if tok := j.Token(3); tok != 30 {
			t.Errorf("token of a forgotten job is %d, want 30", tok)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestJournalDropsATornTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, 1)
	begin(t, j, 2)
	j.Close()
	data, err := os.ReadFile(Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	whole := len(data)
	for cut := whole - 1; cut > whole/2; cut-- {
		if err := os.WriteFile(Path(dir), data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir)
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, whole, err)
		}
		if len(j.Records()) != 1 {
			t.Errorf("cut at %d of %d: %d records, want the first", cut, whole, len(j.Records()))
		}
		j.Close()
	}
}

func TestJournalNamesTheFileThatIsCorrupt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, 1)
	begin(t, j, 2)
	j.Close()
	data, err := os.ReadFile(Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	data[recordOverhead+1] ^= 1
	if err := os.WriteFile(Path(dir), data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, fileName)) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("error %v, want one that names file and remedy", err)
	}
}

func TestJournalTakesManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	var wg sync.WaitGroup
	for job := uint64(1); job <= 200; job++ {
		wg.Go(func() { begin(t, j, job) })
	}
	wg.Wait()
	j.Close()
	if n := len(open(t, dir).Records()); n != 200 {
		t.Errorf("%d records, want 200", n)
	}
}

func FuzzJournal(f *testing.F) {
	buf, err := encodeRecord(recIntent, &nodev1.Assignment{Job: 1, Attempt: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(buf)
	f.Add(append(buf, buf...))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 'X'})
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(Path(dir), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if j, err := Open(dir); err == nil {
			j.Close()
		}
	})
}

// TestTokensOfManyJobs: when there are too many, those of attempts that go on are kept,
// before and after a restart.
func TestTokensOfManyJobs(t *testing.T) {
	t.Parallel()
	d, dir := newRecorder(), t.TempDir()
	j, err := openOn(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Begin(&nodev1.Assignment{Job: 7, Attempt: 2, Token: 700}); err != nil {
		t.Fatal(err)
	}
	for job := range cluster.JobID(maxKeptTokens) {
		j.noteToken(100+job, cluster.Token(1+job))
	}
	j.mu.Lock()
	err = j.rewrite()
	j.mu.Unlock()
	if err != nil || j.Token(7) != 700 || j.Token(100) != 0 {
		t.Errorf("%v; the token of one that goes on is %d, of one that is over %d", err, j.Token(7), j.Token(100))
	}
	if again := d.crashed(t, dir, 0); again.Token(7) != 700 {
		t.Errorf("after a crash it is %d", again.Token(7))
	}
}

// TestRecordsThatAreTooLarge are refused, and the journal goes on.
func TestRecordsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	large := &nodev1.Assignment{Job: 1, Attempt: 1, Script: make([]byte, maxRecord)}
	if err := j.Begin(large); err == nil {
		t.Error("a record is written that no journal reads")
	}
	begin(t, j, 2)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	defer j.Close()
	if rs := j.Records(); len(rs) != 1 {
		t.Errorf("records %v", rs)
	}
}
