package processrt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// op is what the agent asks of the keeper.
type op string

const (
	opCreate op = "create"
	// opCreateAlone is create for a job without a network: an older keeper does not know
	// it, and so does not give the job the node's network.
	opCreateAlone op = "create-alone"
	opStart       op = "start"
	opSignal      op = "signal"
	opDelete      op = "delete"
	opBroadcast   op = "broadcast"
	opList        op = "list"
	opInspect     op = "inspect"
	opWatch       op = "watch"    // answers with each task that stops
	opExec        op = "exec"     // from then on the connection is the process's
	opShutdown    op = "shutdown" // ends all tasks, then the keeper
)

type request struct {
	Op     op
	Launch *launch.Launch    `json:",omitempty"`
	ID     cluster.AttemptID `json:",omitempty"`
	Signal syscall.Signal    `json:",omitempty"`
	To     runtime.Audience  `json:",omitempty"`
	Exec   *execRequest      `json:",omitempty"`
	// AllowUncapped goes with create.
	AllowUncapped bool `json:",omitempty"`
}

type response struct {
	Err    string             `json:",omitempty"`
	Launch *launchFault       `json:",omitempty"`
	Tasks  []runtime.Task     `json:",omitempty"`
	Ended  *cluster.AttemptID `json:",omitempty"` // answers watch, with its task in Tasks
	// These two answer exec.
	NotRunning bool                `json:",omitempty"`
	ExecEnd    *runtime.ProcessEnd `json:",omitempty"`
}

// launchFault is a launch.Error on the wire.
type launchFault struct {
	Code        int
	Reason, Msg string
	Missing     bool `json:",omitempty"`
}

// maxFrame bounds a message; the largest is a list of tasks.
const maxFrame = 64 << 20

func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	buf := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err = w.Write(append(buf, body...))
	return err
}

func readFrame(r io.Reader, v any) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

func readBody(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("message of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

func (r *response) fail(err error) {
	var le *launch.Error
	if errors.As(err, &le) {
		r.Launch = &launchFault{Code: le.Code, Reason: le.Reason, Msg: le.Err.Error(), Missing: le.Missing}
		return
	}
	r.Err = err.Error()
}

func (r *response) error() error {
	switch {
	case r.Launch != nil:
		return &launch.Error{Code: r.Launch.Code, Reason: r.Launch.Reason, Missing: r.Launch.Missing, Err: errors.New(r.Launch.Msg)}
	case r.Err != "":
		return errors.New(r.Err)
	}
	return nil
}
