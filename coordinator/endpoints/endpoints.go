// Package endpoints serves over HTTP where the replicas of services take requests,
// in the form of Prometheus' HTTP service discovery
// (https://prometheus.io/docs/prometheus/latest/http_sd/), which other clients also
// read easily.
package endpoints

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
)

// Group is one replica: its address, and what is known of it.
type Group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// Handler serves GET /services with the replicas of all services that are ready,
// and GET /services/NAME with those of the services of that name; ?user= names the
// owner. It shows what every user may list, from this coordinator's copy of the
// state.
func Handler(f *fsm.FSM) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ready(f, r.PathValue("name"), r.URL.Query().Get("user"))) // a client that left does not matter
	}
	mux.HandleFunc("GET /services", answer)
	mux.HandleFunc("GET /services/{name}", answer)
	return mux
}

func ready(f *fsm.FSM, name, user string) []Group {
	out := []Group{}
	for _, r := range f.ServicesWhere(func(_ cluster.UID, owner string, s *cluster.Spec) bool {
		return (name == "" || s.Service.Name == name) && (user == "" || owner == user)
	}) {
		s := r.Spec.Service
		for _, j := range r.Jobs {
			a := j.Live()
			if a == nil || j.State != cluster.JobRunning || a.Serving == nil || a.Serving.State != service.Ready || a.Preempt != nil || j.Cancel != nil {
				continue
			}
			out = append(out, Group{
				Targets: []string{net.JoinHostPort(nodes.HostOf(f, a.Berth.Node), strconv.Itoa(int(a.Port)))},
				Labels:  map[string]string{"service": s.Name, "user": r.Owner.Name, "port": s.Port, "node": string(a.Berth.Node), "replica": strconv.FormatUint(uint64(r.ID), 10) + "-" + strconv.FormatUint(uint64(j.ArrayTaskID), 10)},
			})
		}
	}
	return out
}
