package simcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

const (
	// whatIfJobs is the most jobs that are read.
	whatIfJobs = 20_000
	// whatIfMessage is the largest message that is read, in bytes.
	whatIfMessage = 64 << 20
)

// newSimWhatIfCmd returns the command that a coordinator starts for the page
// "What if": its standard input has the answers of the users' API that sim
// capture would request, as the user received them.
func newSimWhatIfCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use: "what-if", Short: "Replay what a coordinator hands over", Hidden: true, Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runWhatIf(cmd.Context(), e, c, &o) },
	}
	o.policyFlag(cmd.Flags())
	o.flags(cmd, console.FormatJSON)
	return cmd
}

func runWhatIf(ctx context.Context, e *console.Env, c *client.Client, o *simOptions) error {
	cp, err := readAnswers(e.Stdin)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if err := o.check(); err != nil {
		return err
	}
	o.capture = "the coordinator"
	src, err := o.ofCapture(cp, o.capture)
	if err != nil {
		return err
	}
	p, err := o.prepare(ctx, e, c, map[simWorld]*simSource{o.key(): src})
	if err != nil {
		return err
	}
	return o.replay(ctx, e, p, []string{o.policy})
}

// readAnswers makes a capture of answers, each preceded by its length: one of
// GetStatus, one of ListNodes, and any number of ListHistory.
func readAnswers(r io.Reader) (*trace.Capture, error) {
	in := bufio.NewReader(r)
	take := protodelim.UnmarshalOptions{MaxSize: whatIfMessage}
	var st apiv1.GetStatusResponse
	var nodes apiv1.ListNodesResponse
	if err := take.UnmarshalFrom(in, &st); err != nil {
		return nil, fmt.Errorf("how the cluster is: %w", err)
	}
	if err := take.UnmarshalFrom(in, &nodes); err != nil {
		return nil, fmt.Errorf("its nodes: %w", err)
	}
	cp := &trace.Capture{Format: trace.CaptureFormat, Cluster: st.GetName(), Policy: trace.CapturePolicy{Mode: st.GetPolicy(), MaxShares: int(st.GetMaxShares())}}
	cp.Taken = time.Unix(0, 0).UTC()
	if at := moment(st.GetNow()); at != nil {
		cp.Taken = *at
	}
	for _, n := range nodes.GetNodes() {
		cp.Nodes = append(cp.Nodes, captureNode(n))
	}
	for {
		var page apiv1.ListHistoryResponse
		err := take.UnmarshalFrom(in, &page)
		if errors.Is(err, io.EOF) {
			return cp, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its jobs: %w", err)
		}
		for _, j := range page.GetJobs() {
			if len(cp.Jobs) == whatIfJobs {
				return nil, fmt.Errorf("its jobs: more than %d", whatIfJobs)
			}
			cp.Jobs = append(cp.Jobs, captureJob(j))
		}
	}
}
