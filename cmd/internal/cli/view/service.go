package view

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ServiceText gives the state and the place of a replica of a service, ""
// for other jobs.
func ServiceText(j *apiv1.Job, now time.Time) string {
	r := j.GetReplica()
	if r.GetState() == "" {
		return r.GetService()
	}
	text := fmt.Sprintf("%s, %s for %s at %s", r.GetService(), r.GetState(), console.Clock(now.Sub(r.GetSince().AsTime())), net.JoinHostPort(r.GetAddress(), strconv.FormatUint(uint64(r.GetPort()), 10)))
	if r.GetWhy() != "" {
		text += ": " + r.GetWhy()
	}
	return text
}
