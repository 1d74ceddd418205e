package journal

import (
	"errors"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func kept(id string) *nodev1.KeptRequest {
	return &nodev1.KeptRequest{Id: id, Uid: 7, Hash: []byte("0123456789abcdef")}
}

// became is a request as it is recorded when something came of it.
func became(r *nodev1.KeptRequest, state nodev1.RequestState, code int32) *nodev1.KeptRequest {
	r = proto.CloneOf(r)
	r.State, r.Code = state, code
	return r
}

func codeOf(err error) cluster.Code {
	if e, ok := errors.AsType[*cluster.Error](err); ok {
		return e.Code
	}
	return 0
}

func TestRequestsAreRememberedAcrossARestart(t *testing.T) {
	t.Parallel()
	dir, of := t.TempDir(), cluster.AttemptID{Job: 1, No: 1}
	j := open(t, dir)
	begin(t, j, 1)
	for _, id := range []string{"intended", "done", "ended", "void"} {
		r := kept(id)
		if known, err := j.Ask(of, r); known != nil || err != nil {
			t.Fatalf("%s: %v, %v", id, known, err)
		}
		state := map[string]nodev1.RequestState{"done": nodev1.RequestState_REQUEST_STATE_DONE, "ended": nodev1.RequestState_REQUEST_STATE_ENDED,
			"void": nodev1.RequestState_REQUEST_STATE_VOID}[id]
		if state != 0 {
			if err := j.Became(of, became(r, state, 5)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]string{"intended": "REQUEST_STATE_INTENDED 0", "done": "REQUEST_STATE_DONE 5", "ended": "REQUEST_STATE_ENDED 5"}
	for range 3 { // the second opening reads what the first one rewrote
		got := map[string]string{}
		for _, r := range j.Requests(of) {
			got[r.Id] = r.State.String() + " " + strconv.Itoa(int(r.Code))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("requests (-want +got):\n%s", diff)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, dir)
	}
	if known, err := j.Ask(of, kept("done")); known.GetState() != nodev1.RequestState_REQUEST_STATE_DONE || err != nil {
		t.Errorf("asked again: %v, %v", known, err)
	}
	if known, err := j.Ask(of, kept("void")); known != nil || err != nil {
		t.Errorf("what could not be done, again: %v, %v", known, err)
	}
	other := kept("done")
	other.Uid = 8
	if _, err := j.Ask(of, other); codeOf(err) != cluster.CodeAlreadyExists {
		t.Errorf("another user's: %v", err)
	}
	other = kept("done")
	other.Hash = []byte("another request.")
	if _, err := j.Ask(of, other); codeOf(err) != cluster.CodeAlreadyExists {
		t.Errorf("another request: %v", err)
	}
	if _, err := j.Ask(cluster.AttemptID{Job: 1, No: 2}, kept("done")); codeOf(err) != cluster.CodeConflict {
		t.Errorf("an attempt that is not here: %v", err)
	}
	if err := j.End(&nodev1.Report{Job: 1, Attempt: 1, State: nodev1.AttemptState_ATTEMPT_STATE_COMPLETED}); err != nil {
		t.Fatal(err)
	}
	if known, err := j.Ask(of, kept("after its end")); known != nil || codeOf(err) != cluster.CodeConflict {
		t.Errorf("an attempt that has ended: %v, %v", known, err)
	}
	if known, err := j.Ask(of, kept("done")); known == nil || err != nil {
		t.Errorf("what was asked before its end, again: %v, %v", known, err)
	}
	if err := j.Forget(of); err != nil {
		t.Fatal(err)
	}
	if got := j.Requests(of); len(got) != 0 {
		t.Errorf("a forgotten attempt has %v", got)
	}
}

// TestRequestsAreBounded asks for more than is remembered, and again when the oldest
// may be forgotten.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	dir, of := t.TempDir(), cluster.AttemptID{Job: 1, No: 1}
	synctest.Test(t, func(t *testing.T) {
		j := open(t, dir)
		defer j.Close()
		begin(t, j, 1)
		ask := func(i int) error {
			known, err := j.Ask(of, kept("request-"+strconv.Itoa(i)))
			if known != nil {
				t.Fatalf("request %d is known as %v", i, known)
			}
			return err
		}
		for i := range maxRequests {
			if i == maxRequests/2 {
				time.Sleep(requestLife - 10*time.Millisecond)
			}
			time.Sleep(time.Microsecond) // each is older than the next
			if err := ask(i); err != nil {
				t.Fatal(err)
			}
		}
		if err := ask(maxRequests); codeOf(err) != cluster.CodeExhausted {
			t.Fatalf("one more than is remembered: %v", err)
		}
		time.Sleep(time.Second)
		for i := range maxRequests / 4 {
			if err := ask(maxRequests + i); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(j.Requests(of)); n > maxRequests {
			t.Errorf("%d are remembered", n)
		}
		// The oldest half of what may be forgotten is, and no more.
		was := map[string]bool{}
		for _, r := range j.Requests(of) {
			was[r.Id] = true
		}
		for _, i := range []int{0, maxRequests/4 - 1, maxRequests / 4, maxRequests/2 - 1} {
			if has := was["request-"+strconv.Itoa(i)]; has != (i >= maxRequests/4) {
				t.Errorf("request %d is remembered: %t", i, has)
			}
		}
		// What may still be asked again is there.
		if known, err := j.Ask(of, kept("request-"+strconv.Itoa(maxRequests-1))); known == nil || err != nil {
			t.Errorf("a request of a second ago is forgotten: %v", err)
		}
	})
}

// TestRequestsDoNotFillTheDisk has one attempt's requests come and go for long.
func TestRequestsDoNotFillTheDisk(t *testing.T) {
	t.Parallel()
	dir, of := t.TempDir(), cluster.AttemptID{Job: 1, No: 1}
	j := open(t, dir)
	defer j.Close()
	begin(t, j, 1)
	r := kept("request")
	if _, err := j.Ask(of, r); err != nil {
		t.Fatal(err)
	}
	r = became(r, nodev1.RequestState_REQUEST_STATE_DONE, 0)
	r.Hash = make([]byte, 10_000)
	for range 2000 {
		if err := j.Became(of, r); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(Path(dir))
	if err != nil || info.Size() > rewriteAbove+20_000 {
		t.Errorf("the journal has %d bytes, %v", info.Size(), err)
	}
}
