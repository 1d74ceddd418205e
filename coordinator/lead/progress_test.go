package lead

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// TestTalesFillNoLog: of a job that always has news little more than one a minute is
// written down in a day, and of one that goes on as foreseen nothing is held back.
func TestTalesFillNoLog(t *testing.T) {
	t.Parallel()
	p, said := &pace{}, 0
	for at := time.Duration(0); at < 24*time.Hour; at += progressEvery {
		if p.due(cluster.Time(1).Add(at)) {
			said++
		}
	}
	if said < 24*60 || said > 24*60+200 {
		t.Errorf("%d times in a day", said)
	}
	p = &pace{}
	for n := range 20 { // a job of five minutes, a twentieth each
		if !p.due(cluster.Time(1).Add(time.Duration(n) * 15 * time.Second)) {
			t.Errorf("twentieth %d is held back", n)
		}
	}
}
