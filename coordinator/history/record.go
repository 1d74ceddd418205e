package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxRecord bounds a record, so that a damaged length allocates little.
const maxRecord = 2 << 20

var errCutShort = errors.New("cut short")

// checksum is CRC-32C, which processors compute in hardware.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Record encodes a finished job for the store, identically on every coordinator of
// one version. It leaves out what is large and not needed later: environment,
// script, features of the model, the predictions that placed nothing and, for one
// task, the numbers of the others in its array.
func Record(j *cluster.Job) ([]byte, error) {
	s := *j.Spec
	s.Env, s.Script, s.Bulk, s.Features = nil, nil, nil, nil
	if j.Fold == nil {
		s.Array = nil
	}
	m := conv.JobToLog(j)
	m.Spec, m.Estimates = conv.SpecToLog(&s), nil
	for bare := 0; ; {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		n := len(m.Attempts)
		switch {
		case err != nil:
			return nil, fmt.Errorf("record of job %d: %w", j.ID, err)
		case len(b) <= maxRecord:
			return b, nil
		case bare == n:
			return nil, fmt.Errorf("record of job %d has %d bytes, at most %d are kept", j.ID, len(b), maxRecord)
		}
		// Hundreds of attempts on hundreds of nodes: for the first ones their
		// outcome is enough.
		upTo := bare + (n-bare+1)/2
		for ; bare < upTo; bare++ {
			a := m.Attempts[bare]
			m.Attempts[bare] = &logv1.Attempt{
				No: a.No, Token: a.Token, State: a.State, Reason: a.Reason, Exit: a.Exit, PlacedUs: a.PlacedUs, StartedUs: a.StartedUs, EndedUs: a.EndedUs,
			}
		}
	}
}

// JobOf decodes what Record made. Bytes that are no finished job are an error.
func JobOf(record []byte) (*cluster.Job, error) {
	m := new(logv1.Job)
	if err := proto.Unmarshal(record, m); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	j, err := conv.JobFromLog(m)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if !j.State.Terminal() || j.Revision == 0 {
		return nil, fmt.Errorf("record of job %d, which has not ended", j.ID)
	}
	j.ArrayJobID, j.ArrayTaskID = cluster.JobID(m.GetArrayJob()), m.GetArrayTask()
	fold := m.GetFold()
	for i := 0; i+1 < len(fold); i += 2 {
		j.Fold = append(j.Fold, cluster.Span{From: int(fold[i]), To: int(fold[i+1])})
	}
	if j.Fold != nil && (j.Spec.Array == nil || j.ArrayJobID == 0 || j.Fold[len(j.Fold)-1].To >= j.Spec.Array.Tasks.Len()) {
		return nil, fmt.Errorf("record of job %d stands for tasks that there are not", j.ID)
	}
	return j, nil
}

// frame is a part of the history: the jobs that ended after the frame before it and
// up to upTo, in order.
type frame struct {
	upTo    uint64
	records [][]byte
}

// A frame in a file: the length and the checksum of what follows, upTo, the number
// of records, and each with its length before it.
const frameHead = 8

// encode appends the frame to b.
func (f *frame) encode(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	b = binary.AppendUvarint(b, f.upTo)
	b = binary.AppendUvarint(b, uint64(len(f.records)))
	for _, r := range f.records {
		b = binary.AppendUvarint(b, uint64(len(r)))
		b = append(b, r...)
	}
	body := b[at+frameHead:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[at+4:], checksum(body))
	return b
}

// decodeFrame reads the frame at the beginning of b and returns what follows.
func decodeFrame(b []byte) (frame, []byte, error) {
	var f frame
	if len(b) < frameHead {
		return f, b, errCutShort
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-frameHead) {
		return f, b, errCutShort
	}
	body, rest := b[frameHead:frameHead+n], b[frameHead+n:]
	if checksum(body) != binary.LittleEndian.Uint32(b[4:]) {
		return f, b, errors.New("wrong checksum")
	}
	r := reader{b: body}
	f.upTo = r.uvarint()
	count := r.uvarint()
	if count > uint64(len(body)) {
		return f, b, errors.New("count out of bounds")
	}
	for range count {
		f.records = append(f.records, r.bytes())
	}
	if r.err != nil || len(r.b) > 0 {
		return f, b, errors.Join(errors.New("malformed"), r.err)
	}
	return f, rest, nil
}

// reader takes values off a slice until the first error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.err = nil, errCutShort
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) || n > maxRecord {
		r.b, r.err = nil, errCutShort
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// entry is a record with its row.
type entry struct {
	row    Row
	record []byte
}

// entryOf returns the record and the row of a finished job. The row is computed
// from what the record keeps, as it is when the record is fetched from a peer.
func entryOf(j *cluster.Job) (entry, error) {
	b, err := Record(j)
	if err != nil {
		return entry{}, err
	}
	kept, err := JobOf(b)
	if err != nil {
		return entry{}, err
	}
	return entry{RowOf(kept), b}, nil
}

// entriesOf decodes the records of frames that come after an index, and checks
// their order.
func entriesOf(records [][]byte, after, upTo uint64) ([]entry, error) {
	out := make([]entry, 0, len(records))
	for _, r := range records {
		j, err := JobOf(r)
		if err != nil {
			return nil, err
		}
		e := entry{row: RowOf(j), record: r}
		if n := len(out); e.row.Index <= after || e.row.Index > upTo || n > 0 && !out[n-1].row.before(&e.row) {
			return nil, fmt.Errorf("job %d, which ended at %d, is out of order", e.row.ID, e.row.Index)
		}
		out = append(out, e)
	}
	return out, nil
}

// before orders rows as the jobs ended.
func (r *Row) before(o *Row) bool {
	return r.Index < o.Index || r.Index == o.Index && r.ID < o.ID
}

func compareEnds(a, b *Row) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}
