package batch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAFolderThatDoesNotAnswer: a submit does not wait for it, and says so.
func TestAFolderThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer, began := make(chan struct{}), time.Now()
		defer close(answer)
		said := unlessSilent("/nfs/out", func() []string { <-answer; return nil })
		if len(said) != 1 || !strings.Contains(said[0], "/nfs/out is on a file system that does not answer here") || time.Since(began) != answerWithin {
			t.Errorf("got %q after %s", said, time.Since(began))
		}
		if said := unlessSilent("/tmp/out", func() []string { return []string{"made"} }); len(said) != 1 || said[0] != "made" {
			t.Errorf("of a folder that answers: got %q", said)
		}
	})
}
