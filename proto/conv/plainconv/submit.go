package plainconv

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Carries reports whether AppendSubmit can encode all of s: it does not support
// containers, searches and services.
func Carries(s *cluster.Spec) bool {
	c := &s.Container
	return c.Network == "" && len(c.Mounts) == 0 && !c.ReadOnly && c.TmpMiB == 0 && c.ShmMiB == 0 && s.Study == nil && s.Service == nil
}

// AppendSubmit appends to b an encoded SubmitJobsRequest of the one job s, which it
// must be able to carry. The content is that of apiconv.SpecToAPI.
func AppendSubmit(b []byte, requestID string, s *cluster.Spec) []byte {
	m := message(b)
	m.text(1, requestID)
	m.nest(2, specOf(s))
	return m
}

func specOf(s *cluster.Spec) (m message) {
	m.text(1, s.Name)
	m.texts(2, s.Command)
	m.texts(3, s.Env)
	m.text(4, s.Dir)
	m.text(5, s.Image)
	m.count(6, s.GPUs)
	m.truth(7, s.Exclusive)
	m.text(8, s.GPUType)
	m.text(9, string(s.Node))
	m.number(10, s.GPUMemMiB)
	m.number(11, s.GPUMilli)
	m.duration(12, s.Duration)
	m.number(13, s.MemMiB)
	m.number(14, s.CPUMilli)
	m.duration(15, s.TimeLimit)
	m.text(16, s.Stdin)
	m.text(17, s.Stdout)
	m.text(18, s.Stderr)
	m.truth(19, s.RequeueOnLoss)
	m.text(20, string(s.Features))
	m.text(21, s.Comment)
	m.text(22, string(s.Script))
	m.time(23, s.Deadline)
	m.duration(24, s.DeadlineIn)
	m.text(25, string(s.Objective))
	m.number(26, s.MaxPowerW)
	m.number(27, s.MaxCostMilli)
	m.text(28, s.Checkpoint.Signal)
	m.duration(29, s.Checkpoint.Grace)
	m.text(30, s.Partition)
	m.truth(31, s.Hold)
	m.time(32, s.Begin)
	for i := range s.Depends {
		m.nest(33, dependency(&s.Depends[i]))
	}
	m.truth(34, s.DependAny)
	m.truth(35, s.KillInvalidDepend)
	m.truth(36, s.OrCPU)
	if s.Warning != (cluster.Warning{}) {
		m.nest(37, warning(s.Warning))
	}
	m.truth(38, s.Truncate)
	m.count(40, s.Nodes)
	m.count(41, s.Tasks)
	m.rest(s)
	return m
}

// rest encodes the later additions to specs.
func (m *message) rest(s *cluster.Spec) {
	m.text(42, s.Mail.Events.String())
	m.text(43, s.Mail.To)
	m.duration(44, s.IdleOK)
	m.text(45, s.Account)
	m.text(46, s.QOS)
	if s.Nice != 0 {
		m.tag(47, varint)
		*m = binary.AppendVarint(*m, int64(s.Nice)) // zigzag, like sint32
	}
	if w := s.Where; w != nil {
		m.nest(50, where(w))
	}
	m.truth(51, s.NoResize)
	m.count(52, s.GPURange.Min)
	m.count(53, s.GPURange.Max)
	m.truth(54, s.AllMem)
	m.count(55, s.Retry.Times)
	m.text(56, s.Retry.On)
	m.text(57, string(s.BatchScaling))
	if s.Array != nil {
		m.text(60, s.Array.String())
	}
	m.text(70, string(s.Power.Cap))
	m.text(71, string(s.Power.Freq))
	m.count(73, s.NodeRange.Min)
	m.count(74, s.NodeRange.Max)
	m.truth(88, s.InPlace)
	m.texts(99, s.Data)
}

func dependency(d *cluster.Dependency) (m message) {
	m.text(1, string(d.Kind))
	m.number(2, int64(d.Job)) // #nosec G115 -- varints have no sign
	if d.OneTask {            // present even for task 0
		m.tag(3, varint)
		m.varint(uint64(d.Task))
	}
	m.duration(4, d.Delay)
	return m
}

func warning(w cluster.Warning) (m message) {
	m.text(1, w.Signal)
	m.duration(2, w.Before)
	m.truth(3, w.First)
	return m
}

func where(w *cluster.Where) (m message) {
	m.text(1, w.Nodes.String())
	m.text(2, w.Exclude.String())
	m.text(3, w.Features.String())
	m.truth(4, w.Whole)
	m.text(5, w.Reservation)
	m.text(6, w.Switches.String())
	return m
}

// message is an encoded message under construction. Zero values are omitted, as in
// proto3.
type message []byte

// Wire types of fields: https://protobuf.dev/programming-guides/encoding.
const (
	varint = 0
	fixed8 = 1
	sized  = 2
	fixed4 = 5
)

func (m *message) varint(n uint64)    { *m = binary.AppendUvarint(*m, n) }
func (m *message) tag(field, typ int) { m.varint(uint64(field)<<3 | uint64(typ)) } // #nosec G115 -- constants

func (m *message) nest(field int, b message) {
	m.tag(field, sized)
	m.varint(uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) text(field int, s string) {
	if s != "" {
		m.texts(field, []string{s})
	}
}

func (m *message) texts(field int, list []string) {
	for _, s := range list {
		m.tag(field, sized)
		m.varint(uint64(len(s)))
		*m = append(*m, s...)
	}
}

func (m *message) number(field int, n int64) {
	if n != 0 {
		m.tag(field, varint)
		m.varint(uint64(n)) // #nosec G115 -- two's complement, as protobuf has it
	}
}

func (m *message) count(field, n int) { m.number(field, int64(max(0, n))) }

func (m *message) truth(field int, b bool) {
	if b {
		m.number(field, 1)
	}
}

// seconds encodes a Duration or Timestamp.
func (m *message) seconds(field int, s, nanos int64) {
	var b message
	b.number(1, s)
	b.number(2, nanos)
	m.nest(field, b)
}

func (m *message) duration(field int, d time.Duration) {
	if d != 0 {
		m.seconds(field, int64(d/time.Second), int64(d%time.Second))
	}
}

func (m *message) time(field int, t cluster.Time) {
	if t != 0 {
		at := t.Std()
		m.seconds(field, at.Unix(), int64(at.Nanosecond()))
	}
}

// errCut is the error for an answer that is not a SubmitJobsResponse.
var errCut = errors.New("the answer is malformed")

// Submitted is what a SubmitJobsResponse says: the jobs' ids, warnings, and what was
// promised.
type Submitted struct {
	IDs                []uint64
	Warnings, Promises []string
}

// ReadSubmitted decodes a SubmitJobsResponse.
func ReadSubmitted(b []byte) (s Submitted, err error) {
	for len(b) > 0 {
		tag, data, rest, err := next(b)
		if err != nil {
			return Submitted{}, err
		}
		switch b = rest; tag {
		case 1<<3 | varint:
			id, _ := binary.Uvarint(data)
			s.IDs = append(s.IDs, id)
		case 1<<3 | sized: // packed, as in proto3
			for len(data) > 0 {
				id, n := binary.Uvarint(data)
				if n <= 0 {
					return Submitted{}, errCut
				}
				s.IDs, data = append(s.IDs, id), data[n:]
			}
		case 3<<3 | sized:
			s.Warnings = append(s.Warnings, string(data))
		case 4<<3 | sized:
			s.Promises = append(s.Promises, string(data))
		}
	}
	return s, nil
}

// next cuts the first field off b: its tag, and its value without its length.
func next(b []byte) (tag uint64, data, rest []byte, err error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, nil, errCut
	}
	b = b[n:]
	size := 0
	switch tag & 7 {
	case varint:
		_, size = binary.Uvarint(b)
	case fixed8:
		size = 8
	case fixed4:
		size = 4
	case sized:
		l, n := binary.Uvarint(b)
		if n <= 0 || l > uint64(len(b)-n) {
			return 0, nil, nil, errCut
		}
		b, size = b[n:], int(l) // #nosec G115 -- at most the length of b
		return tag, b[:size], b[size:], nil
	}
	if size <= 0 || size > len(b) {
		return 0, nil, nil, errCut
	}
	return tag, b[:size], b[size:], nil
}
