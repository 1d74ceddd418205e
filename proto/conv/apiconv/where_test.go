package apiconv

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
)

func TestWhereThroughTheAPI(t *testing.T) {
	t.Parallel()
	for _, nodes := range []string{"", "n[1-3],x", "a7"} {
		for _, exclude := range []string{"", "b[01-04]", "c"} {
			for _, features := range []string{"", "a100&nvlink|h100", "x.y:z"} {
				for _, inside := range []string{"", "night", "maint"} {
					want, err := cluster.WhereOf(nodes, exclude, features, true, inside, "")
					if err != nil {
						t.Fatal(err)
					}
					got, err := whereFromAPI(whereToAPI(want))
					if diff := cmp.Diff(want, got); err != nil || diff != "" {
						t.Errorf("%q %q %q %q: %v %s", nodes, exclude, features, inside, err, diff)
					}
				}
			}
		}
	}
	if w, err := whereFromAPI(nil); w != nil || err != nil {
		t.Error("nothing that was said is not anywhere:", w, err)
	}
}
