package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/blobs"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// bigEnv is an environment of n bytes, each with another one by its tag.
func bigEnv(tag string, n int) []string {
	return []string{"BIG=" + tag + strings.Repeat("x", n-len(tag)-len("BIG="))}
}

func bigSpec(tag string, n int) *cluster.Spec {
	s := spec(0)
	s.Env = bigEnv(tag, n)
	return s
}

// partsCmds bring an environment and script for a user's jobs.
func partsCmds(uid cluster.UID, env []string, script []byte) (cmds []*logv1.Command) {
	data, sum := cluster.EncodeBulk(env, script), cluster.BulkSum(env, script)
	for i, part := range slices.Collect(slices.Chunk(data, BulkPart)) {
		cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_PutBulk{PutBulk: &logv1.PutBulk{
			Sum: sum[:], Size: uint32(len(data)), Part: uint32(i), Data: part, Uid: uint32(uid),
		}}})
	}
	return cmds
}

// naming makes the specs of a submit name what they have that is large.
func naming(cmd *logv1.Command) *logv1.Command {
	for _, j := range cmd.GetSubmitJob().GetJobs() {
		nameIn(j.Spec)
	}
	return cmd
}

func nameIn(m *logv1.Spec) {
	b := bulkIn(m)
	if b.Bytes() < cluster.BulkFrom {
		return
	}
	sum := b.Sum()
	m.Env, m.Script, m.Bulk = nil, nil, sum[:]
}

func bulkIn(m *logv1.Spec) cluster.Bulk {
	var env []string
	for _, e := range m.Env {
		env = append(env, string(e))
	}
	return cluster.HoldBulk(env, m.Script)
}

// named submits jobs of user 1000 that name what they have that is large.
func (m *machine) named(specs ...*cluster.Spec) Result {
	m.t.Helper()
	return m.do(naming(submitCmd(m.f.NextJobID(), fmt.Sprintf("request-%d", m.index), 1000, specs...)))[0]
}

func (m *machine) bring(cmds []*logv1.Command) {
	m.t.Helper()
	for _, c := range cmds {
		m.must(c)
	}
}

// sameRestored is the size of a snapshot, which is read back as the same state.
func (m *machine) sameRestored() int {
	m.t.Helper()
	data := snapshotOf(m.t, m.f)
	f := restored(m.t, data)
	if !bytes.Equal(f.Hash(), m.f.Hash()) {
		m.t.Fatalf("restored state differs:\n%s", cmp.Diff(contents(m.t, m.f), contents(m.t, f)))
	}
	if err := checkDerived(f.st); err != nil {
		m.t.Fatalf("restored state: %v", err)
	}
	return len(data)
}

// TestLargePartsAreNamed: what comes in parts, in any order and some of it twice, is
// what the jobs have that name it; it is there as long as one of them is, and a
// snapshot has it once.
func TestLargePartsAreNamed(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s, tasks := bigSpec("a", 3*BulkPart), bigSpec("a", 3*BulkPart)
	s.Script, tasks.Script = []byte("a script"), []byte("a script")
	tasks.Array, _ = cluster.ParseArray("0-3")
	parts := partsCmds(1000, s.Env, s.Script)
	if r := m.named(s); r.Err == nil || r.Err.Code != cluster.CodeUnavailable || !r.LacksBulk || r.Jobs != nil {
		t.Fatalf("before anything came: %+v", r)
	}
	for _, i := range []int{3, 1, 1, 0} {
		m.must(parts[i])
		m.sameRestored()
	}
	if r := m.named(s); !r.LacksBulk {
		t.Fatalf("with a part lacking: %+v", r)
	}
	if m.must(parts[2]).Existing || !m.must(parts[2]).Existing {
		t.Error("what is whole is not known to be there")
	}
	empty := len(snapshotOf(t, m.f)) - 3*BulkPart
	var ids []cluster.JobID
	for range 5 {
		ids = append(ids, m.must(naming(submitCmd(m.f.NextJobID(), fmt.Sprint("r", m.index), 1000, s, tasks))).Jobs...)
	}
	if size := m.sameRestored() - 3*BulkPart; size > empty+10_000 {
		t.Errorf("a snapshot of ten jobs that have the same is %d bytes longer than one of none", size-empty)
	}
	for _, id := range ids {
		if got := entire(m.job(id).Spec); !slices.Equal(got.Env, s.Env) || string(got.Script) != "a script" {
			t.Fatalf("job %d has other variables or another script", id)
		}
	}
	if m.f.st.blobs.Figures().Uploads != 0 || m.f.st.blobs.Figures().UploadBytes != 0 {
		t.Errorf("jobs have it, and it still waits for one: %+v", m.f.st.blobs.Figures())
	}
	m.now = m.now.Add(time.Hour)
	if !m.f.HasBulk(cluster.BulkSum(s.Env, s.Script)) {
		t.Fatal("jobs have it, and it is forgotten after a while")
	}
	for i, id := range ids {
		if i%2 == 0 { // the others are arrays
			m.must(cancelCmd(id, 1000))
		}
	}
	if r := m.named(s); r.Err != nil {
		t.Errorf("arrays have it: %v", r.Err)
	}
}

// TestBackupsHaveLargeParts: what is written outside of Raft has them, those of jobs and
// those that wait for one.
func TestBackupsHaveLargeParts(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s, waits := bigSpec("a", 2*BulkPart), bigSpec("b", 2*BulkPart)
	m.bring(partsCmds(1000, s.Env, nil))
	m.named(s)
	m.bring(partsCmds(1000, waits.Env, nil))
	var file bytes.Buffer
	if err := m.f.Capture().Write(&file); err != nil {
		t.Fatal(err)
	}
	c, err := Load(bytes.NewReader(file.Bytes()), Options{Version: "test", Bulk: shelf{}.keep}, nil)
	if err != nil || !bytes.Equal(c.Hash, m.f.Hash()) {
		t.Fatalf("read with the hash %x, %v; want %x", c.Hash, err, m.f.Hash())
	}
	var again bytes.Buffer
	if err := c.Write(&again); err != nil || !bytes.Equal(again.Bytes(), file.Bytes()) {
		t.Errorf("written again it is other bytes, %v", err)
	}
}

// TestContentGoesWithItsLastJob: it can be named until then, and takes no room after.
func TestContentGoesWithItsLastJob(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := bigSpec("a", 2*BulkPart)
	m.bring(partsCmds(1000, s.Env, nil))
	first, second := m.named(s).Jobs[0], m.named(s).Jobs[0]
	m.must(cancelCmd(first, 0))
	third := m.named(s).Jobs[0]
	m.must(cancelCmd(second, 0))
	m.must(cancelCmd(third, 0))
	if r := m.named(s); !r.LacksBulk {
		t.Errorf("after the last: %+v", r)
	}
	if n := m.sameRestored(); n > BulkPart {
		t.Errorf("a snapshot after the last has %d bytes", n)
	}
	// One that came with its job can be named by the next ones, too.
	m.submit(s)
	if r := m.named(s); r.Err != nil {
		t.Errorf("a job has it: %v", r.Err)
	}
}

// TestUploadsAreForgotten: what no job names within a minute of its first part counts
// for who brought it, and then is gone, whole or not; it may come again.
func TestUploadsAreForgotten(t *testing.T) {
	t.Parallel()
	m := lab(t)
	whole, half := bigSpec("a", 2*BulkPart-100), bigSpec("b", 2*BulkPart-100)
	wholeParts, halfParts := partsCmds(1000, whole.Env, nil), partsCmds(1001, half.Env, nil)
	m.bring(wholeParts)
	m.must(halfParts[0])
	counted := func(uid cluster.UID, next ...*cluster.Job) (user, all, more int64) { return m.f.UserBytes(uid, next) }
	size := int64(wholeParts[0].GetPutBulk().Size)
	if user, all, _ := counted(1000); user != size || all != 2*size {
		t.Errorf("user 1000 has %d bytes of %d, want %d of %d", user, all, size, 2*size)
	}
	if user, _, more := counted(1001, &cluster.Job{Spec: half}); user != size || more > 1000 {
		t.Errorf("user 1001 has %d bytes and would have %d more, want %d and hardly any", user, more, size)
	}
	m.now = m.now.Add(blobs.Life)
	if r := m.named(whole); !r.LacksBulk || m.f.HasBulk(cluster.BulkSum(whole.Env, nil)) {
		t.Fatalf("after a minute: %+v", r)
	}
	if m.f.st.blobs.Figures().Uploads != 2 {
		t.Error("a refusal forgot something")
	}
	m.must(halfParts[1]) // of a new one: the first part is void
	if r := m.named(half); !r.LacksBulk {
		t.Errorf("half of it is forgotten, and it is whole: %+v", r)
	}
	if user, all, _ := counted(1000); user != 0 || all != size {
		t.Errorf("user 1000 has %d bytes of %d, want none of %d", user, all, size)
	}
	m.sameRestored()
	m.must(halfParts[0])
	if r := m.named(half); r.Err != nil {
		t.Errorf("it came again: %v", r.Err)
	}
	if x := m.f.st.blobs.Figures(); x.Uploads+len(x.Sent) != 0 || x.UploadBytes != 0 {
		t.Errorf("something is left: %+v", x)
	}
	m.bring(wholeParts)
	m.now = m.now.Add(2 * blobs.Life)
	m.submit(spec(0))
	m.bring(wholeParts)
	m.now = m.now.Add(2 * blobs.Life)
	m.bring(halfParts)
	m.named(half)
	if x := m.f.st.blobs.Figures(); x.Uploads+len(x.Sent)+x.Aged > 1 || x.UploadBytes != 0 {
		t.Errorf("something is left: %+v", x)
	}
}

// TestRefusedParts: what cannot be a part of what it is said to be changes nothing.
func TestRefusedParts(t *testing.T) {
	t.Parallel()
	s := stage(t)
	big := bigSpec("a", 2*BulkPart-100)
	part := func(i int, change func(c *logv1.PutBulk)) *logv1.Command {
		c := partsCmds(1000, big.Env, nil)[i]
		change(c.GetPutBulk())
		return c
	}
	s.must(part(0, func(*logv1.PutBulk) {}))
	both := submitCmd(s.f.NextJobID(), "both", 1000, big)
	named := both.GetSubmitJob().Jobs[0].Spec
	sum := cluster.BulkSum(big.Env, nil)
	named.Bulk = sum[:]
	s.table([]refusalOf{
		{"no hash", cluster.CodeInvalid, "part 1", part(1, func(c *logv1.PutBulk) { c.Sum = nil })},
		{"too short", cluster.CodeInvalid, "part 1", part(1, func(c *logv1.PutBulk) { c.Data = c.Data[1:] })},
		{"too long", cluster.CodeInvalid, "part 1", part(1, func(c *logv1.PutBulk) { c.Data = append(bytes.Clone(c.Data), 0) })},
		{"far behind", cluster.CodeInvalid, "part 4294967295", part(1, func(c *logv1.PutBulk) { c.Part = 1<<32 - 1 })},
		{"empty", cluster.CodeInvalid, "part 0", part(0, func(c *logv1.PutBulk) { c.Size, c.Data = 0, nil })},
		{"small", cluster.CodeInvalid, "part 0", part(0, func(c *logv1.PutBulk) { c.Size, c.Data = 9, []byte("123456789") })},
		{"huge", cluster.CodeInvalid, "part 1", part(1, func(c *logv1.PutBulk) { c.Size = 1<<32 - 1; c.Data = make([]byte, BulkPart) })},
		{"of another size", cluster.CodeConflict, "has the hash of one", part(1, func(c *logv1.PutBulk) { c.Size--; c.Data = c.Data[1:] })},
		{"other content", cluster.CodeInvalid, "not what their hash says", part(1, func(c *logv1.PutBulk) { c.Data = append(bytes.Clone(c.Data[1:]), '!') })},
		{"named, and there", cluster.CodeInvalid, "names its environment and script, and has them", both},
		{"named by half a hash", cluster.CodeUnavailable, "not in the state any more", s.submitWith(func(c *logv1.SubmitJob) { c.Jobs[0].Spec.Env, c.Jobs[0].Spec.Bulk = nil, sum[:16] }, spec(0))},
		{"an update names nothing", cluster.CodeUnavailable, "not in the state any more", updateCmdOf(s.job(s.waits), func(m *logv1.Spec) { m.Env, m.Bulk = nil, sum[:] })},
	})
	s.must(part(1, func(*logv1.PutBulk) {}))
	if r := s.named(big); r.Err != nil {
		t.Errorf("after all of them: %v", r.Err)
	}
}

// updateCmdOf is a change of a job's stored spec.
func updateCmdOf(j *cluster.Job, change func(*logv1.Spec)) *logv1.Command {
	c := updateCmd(j, func(*cluster.Spec) {})
	change(c.GetUpdateJob().Spec)
	return c
}

// TestUpdateNamesWhatTheJobHas: a change of a job does not bring its environment again.
func TestUpdateNamesWhatTheJobHas(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.submit(bigSpec("a", BulkPart))
	m.must(updateCmdOf(m.job(id), func(s *logv1.Spec) { s.Name = "renamed"; nameIn(s) }))
	if s := entire(m.job(id).Spec); s.Name != "renamed" || !slices.Equal(s.Env, bigEnv("a", BulkPart)) {
		t.Errorf("it is %q with %d variables", s.Name, len(s.Env))
	}
	m.sameRestored()
}

// TestStateThatBeginsToName: a state of entries of before version 12 has large parts in
// each job and its snapshot as they had it; from the first entry on that is of 12 its
// hash and snapshot have names, on whichever way it came there.
func TestStateThatBeginsToName(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	do := func(version uint32, cmd *logv1.Command) Result {
		m.index++
		data, err := EncodeEntry(version, testTerm, m.now, []*logv1.Command{cmd})
		if err != nil {
			t.Fatal(err)
		}
		return applyTo(t, m.f, m.index, testTerm, data)[0]
	}
	const old = command.BulkVersion - 1
	do(old, initCmd("c1", 100))
	tasks := bigSpec("b", BulkPart)
	tasks.Array, _ = cluster.ParseArray("0-9")
	for i := range 5 {
		do(old, submitCmd(m.f.NextJobID(), fmt.Sprint("r", i), 1000, bigSpec("a", BulkPart), tasks))
	}
	if n := m.sameRestored(); n < 10*BulkPart {
		t.Errorf("a snapshot that older ones must read has %d bytes, each job's parts have %d", n, 10*BulkPart)
	}
	was := m.f.Hash()
	again := restored(t, snapshotOf(t, m.f))
	do(EntryVersion, submitCmd(m.f.NextJobID(), "new", 1000, spec(0)))
	if n := m.sameRestored(); n > 3*BulkPart {
		t.Errorf("a snapshot with two contents of %d bytes has %d", BulkPart, n)
	}
	if bytes.Equal(was, m.f.Hash()) {
		t.Error("the hash is the same")
	}
	m.f, m.index = again, again.Index()
	do(EntryVersion, submitCmd(m.f.NextJobID(), "new", 1000, spec(0)))
	m.sameRestored()
}

// naming draws whether a submit names what its jobs have that is large, and whether a
// part of that is brought first where it is not there.
func (w *world) naming(cmd *logv1.Command) *logv1.Command {
	if w.draw("names", 3) == 0 {
		return cmd
	}
	c := cmd.GetSubmitJob()
	for _, j := range c.Jobs {
		b := bulkIn(j.Spec)
		if b.Bytes() < cluster.BulkFrom || w.f.HasBulk(b.Sum()) || w.draw("unknown", 8) == 0 {
			continue
		}
		env, script := b.Load()
		parts := partsCmds(cluster.UID(c.Owner.Uid), env, script)
		return parts[w.draw("part", len(parts))]
	}
	return naming(cmd)
}

// part brings one of what world.spec draws.
func (w *world) part() *logv1.Command {
	tag := rapid.SampledFrom(worldBulks).Draw(w.t, "content")
	parts := partsCmds(cluster.UID(1000+w.draw("uid", 3)), []string{tag}, nil)
	return parts[w.draw("part", len(parts))]
}

// worldBulks are what jobs of the world have that is large, in one part and in two.
var worldBulks = []string{strings.Repeat("x", cluster.BulkFrom), strings.Repeat("y", cluster.BulkFrom), strings.Repeat("z", BulkPart)}

// checkBulks counts anew who has what is large, and what uploads take.
func checkBulks(s *State) error {
	holders, arrays := map[blobs.Sum]int{}, map[cluster.JobID]bool{}
	for _, j := range s.roll.Jobs.List() {
		if j.InArray() && arrays[j.ArrayJobID] || !j.InArray() && j.State.Terminal() || j.Spec.Bulk == nil {
			continue
		}
		arrays[j.ArrayJobID] = true
		holders[j.Spec.Bulk.Sum()]++
	}
	kept := s.blobs.Figures()
	if d := cmp.Diff(holders, kept.Held); d != "" {
		return fmt.Errorf("who has what is large: %s", d)
	}
	users, total, uploads := map[cluster.UID]int64{}, int64(0), 0
	w := table.NewWriter(func(r *logv1.Record) error {
		if u := r.GetUpload(); u != nil {
			users[cluster.UID(u.Uid)] += int64(u.Size)
			total += int64(u.Size)
			uploads++
			if len(u.Parts) == 0 && s.blobs.Of(cluster.Time(u.AtUs), blobs.Sum(u.Sum)) == nil {
				return fmt.Errorf("upload of %d bytes is not what it should be", u.Size)
			}
		}
		return nil
	})
	if s.blobs.Each(w, nil); w.Err() != nil {
		return w.Err()
	}
	if d := cmp.Diff(users, kept.Sent, cmpopts.EquateEmpty()); d != "" || total != kept.UploadBytes || kept.Aged < uploads {
		return fmt.Errorf("uploads of %d bytes, counted anew %d: %s", kept.UploadBytes, total, d)
	}
	return nil
}

// TestGoldenBulk holds the hash of a state with what came in parts: it must be that
// for ever.
func TestGoldenBulk(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := bigSpec("a", BulkPart+100)
	m.bring(partsCmds(1000, s.Env, nil))
	m.must(partsCmds(1000, bigEnv("b", BulkPart+100), nil)[1])
	hash := func() string {
		m.f.st.at.Format = command.BulkVersion // the hash has the version of the last entry, too
		return hex.EncodeToString(m.f.Hash())
	}
	half := hash()
	m.named(s)
	if got := hash(); half != goldenUploads || got != goldenNamed {
		t.Errorf("uploads make the hash %s, a job that names one %s", half, got)
	}
}

const (
	goldenUploads = "21517700aa68e43404a10799876a2801a4198c1bad4e5d2122bd1037bd54e4da"
	goldenNamed   = "8cbc70f9e86dbc26f91801cdf125864f7956468d072d984dbd3a79342818e0e7"
)
