package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Journal holds what an agent must not forget: the assignments it took on, and the ends of
// attempts until the leader has committed them. Records are appended with a checksum; Begin and
// End return when the record is on disk. One fsync serves all callers that wait for one.
//
// The file is rewritten with what is still needed when it is opened, and when most of it no
// longer is. It is safe for concurrent use.
type Journal struct {
	path string
	disk disk

	mu     sync.Mutex
	file   file
	live   map[cluster.AttemptID]*Record
	tokens map[cluster.JobID]cluster.Token
	size   int64 // bytes in the file
	base   int64 // size when it was last rewritten
	err    error // the first write error; the journal is unusable after it, except for lack of space
	// unsynced is the error of a failed sync of the file: no later sync tells whether its
	// records are on disk.
	unsynced error
	pending  []chan error
	syncing  bool
	step     func(name string) // tests end the process there
}

// Record is what the journal holds of one attempt.
type Record struct {
	Assignment *nodev1.Assignment
	// End is the terminal report, nil while the attempt continues.
	End *nodev1.Report

	// requests are those that must not be executed again, by id.
	requests map[string]*nodev1.KeptRequest
}

// kinds of journal record, the first byte of the payload.
const (
	recIntent = 'I' // an Assignment follows
	recEnd    = 'E' // a Report follows
	recForget = 'F' // an AttemptRef follows
	recToken  = 'T' // an Assignment of which only job and token matter, or its request
)

const (
	maxRecord      = 4 << 20 // an assignment with its whole environment and script
	rewriteAbove   = 4 << 20
	maxKeptTokens  = 10_000
	fileName       = "journal.log"
	recordOverhead = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Open opens or creates the journal in dir. It drops a torn last record, which a crash may
// leave; a wrong checksum before that is an error that names the file.
func Open(dir string) (*Journal, error) { return openOn(realDisk{}, dir) }

func openOn(d disk, dir string) (*Journal, error) {
	j := &Journal{
		path:   Path(dir),
		disk:   d,
		live:   map[cluster.AttemptID]*Record{},
		tokens: map[cluster.JobID]cluster.Token{},
		step:   func(string) {},
	}
	if err := j.load(); err != nil {
		return nil, err
	}
	if err := j.rewrite(); err != nil {
		return nil, err
	}
	return j, nil
}

func (j *Journal) load() error {
	f, err := os.Open(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for off := int64(0); ; {
		payload, err := readRecord(r)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil // the end, or a torn last record
		case err != nil:
			if _, peek := r.Peek(1); peek != nil {
				return nil // the last record: its tail never reached the disk
			}
			return fmt.Errorf("journal %s is corrupt at byte %d: %w; move it away and start again: "+
				"running jobs are adopted without it, ended ones are reported lost", j.path, off, err)
		}
		if err := j.replay(payload); err != nil {
			return fmt.Errorf("journal %s at byte %d: %w", j.path, off, err)
		}
		off += int64(len(payload)) + recordOverhead
	}
}

func readRecord(r io.Reader) ([]byte, error) {
	var head [recordOverhead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:4])
	if n == 0 || n > maxRecord {
		return nil, fmt.Errorf("record of %d bytes", n)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("wrong checksum")
	}
	return payload, nil
}

func (j *Journal) replay(payload []byte) error {
	kind, body := payload[0], payload[1:]
	switch kind {
	case recIntent, recToken:
		a := new(nodev1.Assignment)
		if err := proto.Unmarshal(body, a); err != nil {
			return err
		}
		if kind == recToken && j.replayRequest(a) {
			return nil
		}
		if kind == recIntent {
			j.intend(a)
		}
		j.noteToken(cluster.JobID(a.Job), cluster.Token(a.Token))
	case recEnd:
		r := new(nodev1.Report)
		if err := proto.Unmarshal(body, r); err != nil {
			return err
		}
		if rec := j.live[conv.AttemptOf(r)]; rec != nil {
			rec.End = r
		}
	case recForget:
		r := new(nodev1.AttemptRef)
		if err := proto.Unmarshal(body, r); err != nil {
			return err
		}
		delete(j.live, conv.AttemptOf(r))
	default:
		return fmt.Errorf("unknown kind of record %q", kind)
	}
	return nil
}

func (j *Journal) noteToken(job cluster.JobID, t cluster.Token) {
	if t > j.tokens[job] {
		j.tokens[job] = t
	}
}

// Path returns the path of the journal of an agent with state directory dir.
func Path(dir string) string { return filepath.Join(dir, fileName) }

// Failpoint has step called at each step of a record's way to the disk. It must be called
// before anything is recorded.
func (j *Journal) Failpoint(step func(name string)) { j.step = step }

// Records returns what is known of every attempt not yet forgotten.
func (j *Journal) Records() map[cluster.AttemptID]Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make(map[cluster.AttemptID]Record, len(j.live))
	for id, r := range j.live {
		out[id] = *r
	}
	return out
}

// Token returns the highest fencing token ever taken on for job.
func (j *Journal) Token(job cluster.JobID) cluster.Token {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tokens[job]
}

// intend takes over an assignment, or news of one; the end of its attempt is kept.
func (j *Journal) intend(a *nodev1.Assignment) {
	if rec := j.live[conv.AttemptOf(a)]; rec != nil {
		rec.Assignment = a
		return
	}
	j.live[conv.AttemptOf(a)] = &Record{Assignment: a}
}

// Begin records that the agent takes a on, or how far it has come. The record is on disk when
// Begin returns.
func (j *Journal) Begin(a *nodev1.Assignment) error {
	return j.put(recIntent, a, func() {
		j.intend(a)
		j.noteToken(cluster.JobID(a.Job), cluster.Token(a.Token))
	})
}

// End records how an attempt ended. The record is on disk when End returns.
func (j *Journal) End(r *nodev1.Report) error {
	return j.put(recEnd, r, func() {
		if rec := j.live[conv.AttemptOf(r)]; rec != nil {
			rec.End = r
		}
	})
}

// Forget drops an attempt whose end is committed. It need not reach the disk: reporting an end
// twice changes nothing.
func (j *Journal) Forget(id cluster.AttemptID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.live[id] == nil {
		return nil
	}
	j.step("before journal " + string(recForget))
	defer j.step("after journal " + string(recForget))
	delete(j.live, id)
	if err := j.write(recForget, &nodev1.AttemptRef{Job: uint64(id.Job), Attempt: id.No}); err != nil {
		return err
	}
	if j.size > rewriteAbove {
		return j.rewrite()
	}
	return nil
}

// put writes one record and waits until it is on disk. A caller that finds no fsync in progress
// does one for all that have arrived meanwhile.
func (j *Journal) put(kind byte, m proto.Message, applied func()) error {
	return j.putIf(kind, m, func() (bool, error) { return true, nil }, applied)
}

// putIf is put for a record that may turn out, under j.mu, to be unwanted.
func (j *Journal) putIf(kind byte, m proto.Message, wanted func() (bool, error), applied func()) error {
	j.step("before journal " + string(kind))
	j.mu.Lock()
	if ok, err := wanted(); !ok || err != nil {
		j.mu.Unlock()
		return err
	}
	if err := j.write(kind, m); err != nil {
		j.mu.Unlock()
		return err
	}
	j.step("within journal " + string(kind))
	applied()
	done := make(chan error, 1)
	j.pending = append(j.pending, done)
	if j.syncing {
		j.mu.Unlock()
		return j.stepAfter(kind, <-done)
	}
	j.syncing = true
	for len(j.pending) > 0 {
		waiting, f, err := j.pending, j.file, j.unsynced
		j.pending = nil
		j.mu.Unlock()
		if err == nil {
			err = f.Sync()
		}
		for _, w := range waiting {
			w <- err
		}
		j.mu.Lock()
		if err != nil && j.unsynced == nil && j.file == f {
			// The kernel may drop a page that failed to reach the disk: nothing after it can be
			// trusted.
			j.unsynced = fmt.Errorf("sync journal: %w", err)
			j.err = j.unsynced
		}
	}
	j.syncing = false
	j.mu.Unlock()
	return j.stepAfter(kind, <-done)
}

func (j *Journal) stepAfter(kind byte, err error) error {
	j.step("after journal " + string(kind))
	return err
}

func (j *Journal) write(kind byte, m proto.Message) error {
	if err := j.mend(); err != nil {
		return err
	}
	buf, err := encodeRecord(kind, m)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(buf); err != nil {
		j.err = fmt.Errorf("write journal: %w", err)
		if noRoom(err) {
			j.err = fmt.Errorf("%w; make room on that disk, it goes on by itself then", j.err)
		}
		return j.err
	}
	j.size += int64(len(buf))
	return nil
}

// mend replaces a file that could not be written for lack of space, as soon as there is space
// for a new one. After any other failed write, it leaves the file as it is.
func (j *Journal) mend() error {
	if j.err == nil || !noRoom(j.err) {
		return j.err
	}
	if j.rewrite() != nil {
		return j.err
	}
	j.err, j.unsynced = nil, nil
	return nil
}

func encodeRecord(kind byte, m proto.Message) ([]byte, error) {
	buf := append(make([]byte, recordOverhead, 512), kind)
	buf, err := proto.MarshalOptions{}.MarshalAppend(buf, m)
	if err != nil {
		return nil, fmt.Errorf("encode journal record: %w", err)
	}
	payload := buf[recordOverhead:]
	if len(payload) > maxRecord {
		return nil, fmt.Errorf("journal record of %d bytes, at most %d are allowed", len(payload), maxRecord)
	}
	binary.LittleEndian.PutUint32(buf, uint32(len(payload)))
	binary.LittleEndian.PutUint32(buf[4:], crc32.Checksum(payload, castagnoli))
	return buf, nil
}

// rewrite replaces the file by one with what is still needed. An fsync in progress on the old
// file stays valid: what it covers is in the new file, which is synced before it takes the
// name.
func (j *Journal) rewrite() error {
	tmp := j.path + ".new"
	f, err := j.disk.create(tmp)
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	w := bufio.NewWriter(f)
	size := j.writeLive(w)
	err = errors.Join(w.Flush(), f.Sync())
	if err == nil {
		err = j.disk.rename(tmp, j.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("rewrite journal: %w", err), f.Close(), j.disk.remove(tmp))
	}
	if err := j.disk.syncDir(filepath.Dir(j.path)); err != nil {
		j.err = fmt.Errorf("rewrite journal: %w", err) // the open file may no longer have a name
		return errors.Join(j.err, f.Close())
	}
	old := j.file
	j.file, j.size, j.base = f, size, size
	if old != nil && !j.syncing {
		return old.Close()
	}
	return nil
}

func (j *Journal) writeLive(w io.Writer) (size int64) {
	put := func(kind byte, m proto.Message) {
		if buf, err := encodeRecord(kind, m); err == nil {
			n, _ := w.Write(buf) // bufio keeps the error for Flush
			size += int64(n)
		}
	}
	if len(j.tokens) > maxKeptTokens {
		// A job's token matters while its attempts can still be re-sent; live attempts write
		// theirs below.
		clear(j.tokens)
		for _, r := range j.live {
			j.noteToken(cluster.JobID(r.Assignment.Job), cluster.Token(r.Assignment.Token))
		}
	}
	for job, t := range j.tokens {
		put(recToken, &nodev1.Assignment{Job: uint64(job), Token: uint64(t)})
	}
	for id, r := range j.live {
		put(recIntent, r.Assignment)
		for _, q := range r.requests {
			put(recToken, requestRecord(id, q))
		}
		if r.End != nil {
			put(recEnd, r.End)
		}
	}
	return size
}

// Close closes the file. Completed records are on disk.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil || noRoom(j.err) {
		j.err = errors.New("journal is closed")
	}
	return j.file.Close()
}
