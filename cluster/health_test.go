package cluster

import (
	"fmt"
	"testing"
)

func TestHistoryRemembers(t *testing.T) {
	t.Parallel()
	var h []NodeEvent
	for i := range 3 * MaxHistory {
		before := h
		h = Remember(h, NodeEvent{At: Time(i), Kind: fmt.Sprint(i)})
		if len(before) > 0 && before[len(before)-1].At != Time(i-1) {
			t.Fatal("the old history was changed")
		}
	}
	if len(h) != MaxHistory || h[0].At != 2*MaxHistory || h[MaxHistory-1].At != 3*MaxHistory-1 {
		t.Errorf("%d events from %d to %d", len(h), h[0].At, h[len(h)-1].At)
	}
}
