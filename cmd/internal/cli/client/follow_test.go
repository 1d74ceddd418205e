package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestFollow: a reader gets all jobs, then what changes. It is told when nobody
// answers, and that somebody does again even where nothing happens then.
func TestFollow(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	down, quiet := false, false // under the fake's lock
	f.Hook = func(ctx context.Context, method string) error {
		f.Mu.Lock()
		down, quiet := down, quiet
		f.Mu.Unlock()
		switch {
		case down:
			return cluster.Errorf(cluster.CodeUnavailable, "the coordinator stops")
		case quiet && method == "WatchJobs":
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	w.Serve("/a", f)
	news := make(chan string, 100)
	c := client.NewClient(w.Env)
	c.Timeout = time.Second
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Follow(ctx, func(jobs []*apiv1.Job, all bool) {
			news <- fmt.Sprintf("all: %t, first: %s", all, jobs[0].GetName())
		}, func(err error) { news <- fmt.Sprintf("lost: %t", err != nil) })
	}()
	await := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-news:
				if got == want {
					return
				}
			case <-time.After(10 * time.Minute):
				t.Fatalf("%s does not come", want)
			}
		}
	}
	await("lost: false")
	await("all: true, first: train")
	f.Change(func() { f.Jobs[0].Name = "renamed" })
	await("all: false, first: renamed")
	f.Change(func() { down = true })
	await("lost: true")
	f.Change(func() { down, quiet = false, true })
	await("lost: false")
	await("all: true, first: renamed")
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	c.Close()
}
