package history

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Row is what is kept of a finished job besides its record, to select and add up
// jobs without reading records. Sums of time are whole milliseconds.
type Row struct {
	// Index is where in the log it ended.
	Index uint64
	ID    cluster.JobID
	// ArrayJob is the array that it is a task of, 0 for none. Tasks is how many it
	// stands for: tasks that ended together without starting are one, with ids from
	// ArrayJob to ID, with gaps.
	ArrayJob  cluster.JobID
	ArrayTask uint32
	Tasks     uint32
	// Started is when its first attempt began, 0 if none did.
	Submitted, Started, Ended cluster.Time
	// Wait is how long it waited for its first start, or to its end; time before
	// its earliest start does not count.
	Wait time.Duration
	UID  cluster.UID
	User string
	Name string
	// Account, Partition, QOS and GPUType may be "": the type is that of the
	// last attempt.
	Account, Partition, QOS, GPUType string
	State                            cluster.JobState
	ExitCode                         uint8
	Signal                           uint8
	// GPUs and Nodes are those of its last attempt, or what it asked for.
	GPUs, Nodes, Attempts uint16
	// Allocated is GPUs times the time that it ran on them, over all attempts;
	// Measured the part of it that agents measured, Used that part times
	// utilization, and Charged what it costs, see cluster.Charge. Cores is the same
	// as Allocated for processor cores.
	Allocated, Measured, Used, Charged, Cores time.Duration
	// GPUMemMiB is the share of each GPU, GPUMemPeakMiB the most that was held.
	GPUMemMiB, GPUMemPeakMiB uint32
	MemMiB, MemPeakMiB       uint32
}

// RowOf returns the row of a finished job. It depends on the job alone.
func RowOf(j *cluster.Job) Row {
	s := j.Spec
	r := Row{
		Index: j.Revision, ID: j.ID, Submitted: j.Submitted, Ended: j.Ended, UID: j.Owner.UID, User: j.Owner.Name,
		Name: s.Name, Account: s.Account, Partition: s.Partition, QOS: s.QOS, GPUType: s.GPUType, State: j.State,
		ArrayJob: j.ArrayJobID, ArrayTask: j.ArrayTaskID, Tasks: clip[uint32](int64(j.Count())), Charged: j.Charge(j.Ended).GPU,
		GPUs: clip[uint16](int64(s.GPUs * s.NodeCount())), Nodes: clip[uint16](int64(s.NodeCount())),
		Attempts: clip[uint16](int64(len(j.Attempts))), MemMiB: clip[uint32](s.MemMiB),
	}
	for i := range j.Attempts {
		r.add(&j.Attempts[i], j.Ended)
	}
	began := cmp.Or(r.Started, j.Ended)
	r.Wait = max(0, began.Sub(max(j.Submitted, s.Begin)))
	if a := j.Last(); a != nil {
		r.last(a)
	}
	return r
}

// add adds what an attempt held and used.
func (r *Row) add(a *cluster.Attempt, end cluster.Time) {
	if a.Started != 0 && r.Started == 0 {
		r.Started = a.Started
	}
	ran := a.Ran(end)
	var gpus, cores int64
	for _, b := range a.Berths() {
		gpus, cores = gpus+int64(len(b.GPUs)), cores+b.CPUMilli
	}
	held := ran * time.Duration(gpus)
	r.Allocated += held
	r.Cores += ran / 1000 * time.Duration(cores)
	u := &a.Usage
	if u.Milli > 0 || u.Profile != nil && u.Profile.Sampled > 0 {
		r.Measured += held
		r.Used += held / cluster.WholeGPU * time.Duration(min(max(0, u.Milli), cluster.WholeGPU))
	}
	r.GPUMemPeakMiB = max(r.GPUMemPeakMiB, clip[uint32](u.GPUMemPeakMiB))
	r.MemPeakMiB = max(r.MemPeakMiB, clip[uint32](u.HostMemPeakMiB))
}

// last records where the last attempt ran and how it ended.
func (r *Row) last(a *cluster.Attempt) {
	if t := a.Estimate.GPUType; t != "" {
		r.GPUType = t
	}
	gpus := 0
	for _, b := range a.Berths() {
		gpus += len(b.GPUs)
		r.MemMiB = max(r.MemMiB, clip[uint32](b.MemMiB))
		for _, g := range b.GPUs {
			r.GPUMemMiB = max(r.GPUMemMiB, clip[uint32](g.Share.MemMiB))
		}
	}
	r.GPUs, r.Nodes = clip[uint16](int64(gpus)), clip[uint16](int64(a.Nodes()))
	if x := a.Exit; x != nil {
		r.ExitCode, r.Signal = uint8(x.Code), uint8(x.Signal)
	}
}

// first returns the least id by which it may be requested.
func (r *Row) first() cluster.JobID {
	if r.ArrayJob != 0 {
		return min(r.ID, r.ArrayJob)
	}
	return r.ID
}

// Is reports whether an id may mean it: its own, that of its array or, if it stands
// for several tasks, one between its first and last.
func (r *Row) Is(id cluster.JobID) bool {
	return id == r.ID || r.ArrayJob != 0 && (id == r.ArrayJob || r.Tasks > 1 && id > r.ArrayJob && id < r.ID)
}

func clip[T uint16 | uint32](n int64) T { return T(min(max(0, n), int64(^T(0)))) }

// rowBytes is the length of a stored row; texts are places in a table.
const rowBytes = 8*13 + 4*12 + 2*3 + 4

// rowText is where in a stored row the places of the texts begin, in the order of
// texts.
const rowText = 8 * 13

// texts returns the texts of a row in stored order.
func (r *Row) texts() [6]*string {
	return [6]*string{&r.User, &r.Name, &r.Account, &r.Partition, &r.QOS, &r.GPUType}
}

// The places of texts that queries select by.
const (
	textUser = iota
	textName
	textAccount
	textPartition
)

const (
	offIndex = 0
	offID    = 8
	offEnded = 32
	offUID   = rowText + 6*4
	offArray = 40
	offTasks = rowText + 11*4
)

// put writes the row; ref returns the place of a text.
func (r *Row) put(b []byte, ref func(string) uint32) {
	le := binary.LittleEndian
	for i, v := range [13]uint64{
		r.Index, uint64(r.ID), uint64(r.Submitted), uint64(r.Started), uint64(r.Ended), uint64(r.ArrayJob), uint64(r.Wait / time.Millisecond),
		ms(r.Allocated), ms(r.Measured), ms(r.Used), ms(r.Charged), ms(r.Cores), uint64(r.ArrayTask),
	} {
		le.PutUint64(b[8*i:], v)
	}
	b = b[rowText:]
	for i, t := range r.texts() {
		le.PutUint32(b[4*i:], ref(*t))
	}
	for i, v := range [6]uint32{uint32(r.UID), r.GPUMemMiB, r.GPUMemPeakMiB, r.MemMiB, r.MemPeakMiB, r.Tasks} {
		le.PutUint32(b[24+4*i:], v)
	}
	b = b[48:]
	le.PutUint16(b, r.GPUs)
	le.PutUint16(b[2:], r.Nodes)
	le.PutUint16(b[4:], r.Attempts)
	b[6], b[7], b[8], b[9] = byte(r.State), r.ExitCode, r.Signal, 0
}

// get reads what put wrote; text returns the text of a place.
func (r *Row) get(b []byte, text func(uint32) string) error {
	le := binary.LittleEndian
	u := func(i int) uint64 { return le.Uint64(b[8*i:]) }
	d := func(i int) time.Duration { return time.Duration(u(i)) * time.Millisecond }
	r.Index, r.ID, r.Submitted, r.Started, r.Ended = u(0), cluster.JobID(u(1)), cluster.Time(u(2)), cluster.Time(u(3)), cluster.Time(u(4))
	r.ArrayJob, r.ArrayTask = cluster.JobID(u(5)), uint32(u(12))
	r.Wait, r.Allocated, r.Measured, r.Used, r.Charged, r.Cores = d(6), d(7), d(8), d(9), d(10), d(11)
	b = b[rowText:]
	for i, t := range r.texts() {
		*t = text(le.Uint32(b[4*i:]))
	}
	b = b[24:]
	r.UID, r.GPUMemMiB, r.GPUMemPeakMiB = cluster.UID(le.Uint32(b)), le.Uint32(b[4:]), le.Uint32(b[8:])
	r.MemMiB, r.MemPeakMiB, r.Tasks = le.Uint32(b[12:]), le.Uint32(b[16:]), le.Uint32(b[20:])
	b = b[24:]
	r.GPUs, r.Nodes, r.Attempts = le.Uint16(b), le.Uint16(b[2:]), le.Uint16(b[4:])
	r.State, r.ExitCode, r.Signal = cluster.JobState(b[6]), b[7], b[8]
	if !r.State.Terminal() {
		return fmt.Errorf("job %d is in state %d, which is no end", r.ID, b[6])
	}
	return nil
}

func ms(d time.Duration) uint64 { return uint64(max(0, d) / time.Millisecond) }
