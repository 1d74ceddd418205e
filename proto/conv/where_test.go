package conv

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// genWhere makes one that says something, with all fields or some.
func genWhere(t *rapid.T, all bool) *cluster.Where {
	pick := func(label string, of ...string) string {
		if !all && rapid.Bool().Draw(t, "no "+label) {
			return ""
		}
		return rapid.SampledFrom(of).Draw(t, label)
	}
	w, err := cluster.WhereOf(pick("nodelist", "n[1-3],x", "a7"), pick("exclude", "b[01-04]", "c"), pick("constraint", "a100&nvlink|h100", "x.y:z"), true, pick("inside", "night", "maint"), pick("switches", "1@5m0s", "2@30s"))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func genReservation(t *rapid.T) *dispatch.Reservation {
	nodes, err := cluster.ParseHostList(rapid.SampledFrom([]string{"n[1-4]", "ALL", "a,b"}).Draw(t, "nodes"))
	if err != nil {
		t.Fatal(err)
	}
	r := &dispatch.Reservation{
		Name: rapid.StringMatching(`[a-z][a-z0-9_.-]{0,20}`).Draw(t, "name"), Revision: rapid.Uint64().Draw(t, "revision"),
		Start: cluster.Time(rapid.Int64Range(1, 1<<52).Draw(t, "start")), Duration: time.Duration(rapid.IntRange(1, 86400).Draw(t, "seconds")) * time.Second,
		Repeat: rapid.SampledFrom([]dispatch.Repeat{"", dispatch.RepeatDaily, dispatch.RepeatWeekly}).Draw(t, "repeat"), Nodes: nodes,
		Maint: rapid.Bool().Draw(t, "maint"), Features: rapid.SampledFrom([]string{"", "a100"}).Draw(t, "features"), Comment: rapid.StringN(0, 20, 80).Draw(t, "comment"),
	}
	if rapid.Bool().Draw(t, "cards") {
		r.GPUs = []cluster.GPUID{"g1", "g2"}
	}
	if rapid.Bool().Draw(t, "some") {
		r.Users, r.Accounts = []string{"ann", "1001"}, []string{"bio"}
	}
	return r
}

func TestReservationRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := genReservation(t)
		got, err := ReservationFromLog(overWire(t, ReservationToLog(want), &logv1.Reservation{}))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}
