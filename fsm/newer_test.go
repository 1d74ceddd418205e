package fsm

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestNewerStateIsRefused: a snapshot of a state that later versions of entries made
// is refused in words, even when all that is in it could be read.
func TestNewerStateIsRefused(t *testing.T) {
	t.Parallel()
	m := everything(t)
	if err := CheckSnapshot(bytes.NewReader(snapshotOf(t, m.f))); err != nil {
		t.Errorf("the state of this version: %v", err)
	}
	m.f.st.at.Format = EntryVersion + 1
	data := snapshotOf(t, m.f)
	for what, err := range map[string]error{
		"check":   CheckSnapshot(bytes.NewReader(data)),
		"restore": New(Options{}).Restore(io.NopCloser(bytes.NewReader(data))),
	} {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("entries up to version %d was written by berth", EntryVersion+1)) || !strings.Contains(err.Error(), fmt.Sprintf("this one reads 1 to %d", EntryVersion)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
