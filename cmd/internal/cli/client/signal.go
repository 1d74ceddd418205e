package client

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// maxSignal is the highest signal number.
const maxSignal = 64

// ParseSignal reads a signal for jobs: a name, with or without SIG, or a number.
func ParseSignal(text string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	sig := unix.SignalNum("SIG" + name)
	if n, err := strconv.ParseUint(text, 10, 8); err == nil && n <= maxSignal {
		sig = syscall.Signal(n)
	}
	switch sig {
	case 0:
		return 0, console.Usagef("signal %s: unknown; want a name such as USR1, HUP or INT, or a number", console.ShortQuote(text))
	case syscall.SIGKILL:
		return 0, console.Usagef("signal %s: ends a job; use berth cancel", name)
	}
	return sig, nil
}

// Signal sends a signal to the processes of a running job, once on each of
// its nodes, however often the coordinators have to be asked.
func (c *Client) Signal(ctx context.Context, j *apiv1.Job, what *apiv1.AttachSignal) error {
	nodes, err := slurm.Unfold(j.GetNodeList())
	if err != nil || len(nodes) == 0 {
		nodes = []string{""}
	}
	what.RequestId = c.env.RequestID()
	for _, node := range nodes {
		open := &apiv1.AttachOpen{Job: j.GetId(), Node: node, What: &apiv1.AttachOpen_Signal{Signal: what}}
		if err := c.untilDone(ctx, open); err != nil {
			return err
		}
	}
	return nil
}

// untilDone repeats a request that is carried out once until it is known to be done.
func (c *Client) untilDone(ctx context.Context, open *apiv1.AttachOpen) error {
	patience := min(AttachPatience, c.Timeout)
	deadline := time.Now().Add(patience)
	for pause := FirstWait; ; pause = min(2*pause, mostWait) {
		a, err := c.Attach(ctx, Changes, patience, open)
		if err != nil {
			return err
		}
		var m *apiv1.AttachResponse
		for err == nil && m.GetEnded() == nil {
			m, err = a.Recv()
		}
		a.Close()
		var ce *cluster.Error
		if err == nil || !errors.As(err, &ce) || !Indefinite(ce) || time.Now().After(deadline) || !wait.Sleep(ctx, pause) {
			return err
		}
	}
}
