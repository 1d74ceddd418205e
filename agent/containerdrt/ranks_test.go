package containerdrt

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
)

// TestRanks: several processes of one job, in an image that has no library of
// ours and on the node's own files; the first that fails says how all end, and
// its code is known though the job began before this runtime looked.
func TestRanks(t *testing.T) {
	require(t)
	b := newBench(t)
	for i, image := range []string{b.image, ""} {
		name := "image"
		if image == "" {
			name = "host"
		}
		t.Run(name, func(t *testing.T) {
			l := b.job(900+i, image, "/bin/sh", "-c", "echo rank $RANK local $LOCAL_RANK; at=/tmp/berth-ranks-test-$PPID; "+
				"test $RANK = 5 || { : > $at-$RANK; exec sleep 600; }; until test -e $at-4 -a -e $at-6; do sleep 0.05; done; rm $at-4 $at-6; exit 9")
			l.Ranks = &launch.Ranks{Tasks: 3, First: 4, Grace: 5 * time.Second}
			b.start(l)
			got := b.lines(l, 4) // what both streams say is copied in no order
			slices.Sort(got)
			if want := []string{"rank 4 local 0", "rank 5 local 1", "rank 6 local 2"}; !slices.Equal(got[1:], want) {
				t.Errorf("printed %q, want %q", got, want)
			}
			if task := b.wait(l.ID); task.ExitCode != 9 || task.Signal != 0 {
				t.Errorf("ended %+v, want code 9", task)
			}
		})
	}
}
