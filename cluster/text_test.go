package cluster

import "testing"

func TestClipText(t *testing.T) {
	t.Parallel()
	if got := ClipText("größer\xff", 4); got != "grö" {
		t.Errorf("%q", got)
	}
	if got := ClipText("as it is", 100); got != "as it is" {
		t.Errorf("%q", got)
	}
}
