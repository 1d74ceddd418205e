package dev

import (
	"slices"
	"strings"
	"testing"
)

// TestNodesOfData: a data set that no agent would take is refused in the words of the
// option, before anything is started.
func TestNodesOfData(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1x1xT4@data=coco":           `nodes "1x1xT4@data=coco": data set is "coco", want NAME=/path`,
		"1x1xT4@old+data=co co=/srv": `nodes "1x1xT4@old+data=co co=/srv": data set`,
	} {
		if _, err := ParseNodes(in); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	nodes, err := ParseNodes("2x1xT4@old+data=coco=/srv/coco+data=/data/*")
	if err != nil || len(nodes) != 2 || !slices.Equal(nodes[1].Data, []string{"/data/*", "coco=/srv/coco"}) {
		t.Errorf("%v, %v", nodes, err)
	}
}
