package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestAnswers: what a replica answers makes it healthy or not, and an answer of somebody
// else's is none.
func TestAnswers(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.UserAgent() != "berth" {
			http.Error(w, "what is this?", http.StatusTeapot)
		}
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/sick", http.StatusFound) })
	mux.HandleFunc("/sick", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // it is not read to its end, which never comes
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	release := make(chan struct{})
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	port := uint32(s.Listener.Addr().(*net.TCPAddr).Port)
	me := uint32(os.Getuid())
	ask := func(ctx context.Context, path string, uid, port uint32) string {
		if err := Answers(ctx, &nodev1.Replica{Port: port, Health: path}, uid, true); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, x := range []struct {
		path string
		uid  uint32
		want string
	}{
		{"/ok", me, ""}, {"", me, ""}, {"/moved", me, ""}, {"/long", me, ""}, {"/sick", me, "GET /sick: 503 Service Unavailable"},
		{"/none", me, "GET /none: 404 Not Found"}, {"/ok", me + 1, "is held by a process of another user, with uid"}, {"", me + 1, "is held by a process of another user"},
	} {
		if got := ask(t.Context(), x.path, x.uid, port); (got == "") != (x.want == "") || !strings.Contains(got, x.want) {
			t.Errorf("%s as %d: %q, want %q", x.path, x.uid, got, x.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := ask(ctx, "/silent", me, port); got == "" {
		t.Error("a silent one is healthy")
	}
	// One that is bound and does not listen: nobody else can take it meanwhile.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	free := uint32(bound.(*unix.SockaddrInet4).Port)
	if got := ask(t.Context(), "/ok", me, free); !strings.Contains(got, "nothing listens on port") {
		t.Errorf("a port of nobody: %q", got)
	}
}

// TestListener reads tables as the kernel writes them.
func TestListener(t *testing.T) {
	t.Parallel()
	const table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1 0 100 0 0 10 0\n" +
		"   1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 1 1 0 100 0 0 10 0\n" +
		"   3: 0500000A:1F93 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1004        0 1 1 0 100 0 0 10 0\n" + // on another address
		"   4: 0000000000000000FFFF00000100007F:1F94 0:0 0A 00000000:00000000 00:00000000 00000000  1005 0 1\n" +
		"   5: broken 0A\n" +
		"   6: 0100007F:XYZ 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1\n" +
		"   7: 0100007F:1F95 00000000:0000 0A 00000000:00000000 00:00000000 00000000  many        0 1\n" +
		"   8: 0100007F:1F96 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1\n" + // one here, and
		"   9: 0500000A:1F96 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 1\n" + // another by which requests come
		"  10: 00000000:1F97 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1\n" +
		"  11: 0200007F:1F97 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 1\n" + // which reaches nobody from elsewhere
		"  12: 00000000000000000000000001000000:1F97 0:0 0A 00000000:00000000 00:00000000 00000000  1002 0 1\n" +
		"  13: 00000000000000000000000000000000:1F98 0:0 0A 00000000:00000000 00:00000000 00000000  1001 0 1\n" +
		"  14: 0100007F:1F92 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1003        0 1 1 0 100 0 0 10 0\n" + // it talks, as all do from here on
		"  15: 0100007F:1F99 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1\n"
	name := filepath.Join(t.TempDir(), "tcp")
	if err := os.WriteFile(name, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	others := func(uid uint32) listeners { return listeners{another: true, who: uid} }
	own, none := listeners{own: true}, listeners{}
	for port, want := range map[uint16][2]listeners{ // of 1001 and of 1002
		8080: {own, others(1001)}, 8081: {others(1002), own}, 8082: {none, none}, 8083: {others(1004), others(1004)}, 8084: {others(1005), others(1005)}, 8085: {none, none},
		8086: {others(1002), others(1001)}, 8087: {own, others(1001)}, 8088: {own, others(1001)}, 8089: {none, none}, 1: {none, none},
	} {
		for i, uid := range []uint32{1001, 1002} {
			if got, err := listenersIn(name, uid, port); err != nil || got != want[i] {
				t.Errorf("port %d of %d: %+v, %v; want %+v", port, uid, got, err, want[i])
			}
		}
	}
	if got, err := listenersIn(filepath.Join(t.TempDir(), "none"), 1, 1); got != none || err != nil {
		t.Errorf("without the table: %+v, %v", got, err)
	}
}

// TestProber asks in turns, counts failures, tells, and stops.
func TestProber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asks, fault := 0, error(nil)
		p := New(func(context.Context, *nodev1.Replica, uint32) error {
			mu.Lock()
			defer mu.Unlock()
			asks++
			return fault
		})
		asked := func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return asks
		}
		answer := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			fault = err
		}
		id := cluster.AttemptID{Job: 7, No: 2}
		p.Begin(id, 1000, nil)
		if got := p.Add(nil); got != nil {
			t.Errorf("of no replica: %v", got)
		}
		r := &nodev1.Replica{Port: 7, Every: durationpb.New(5 * time.Second)}
		p.Begin(id, 1000, r)
		p.Begin(id, 1000, r)
		synctest.Wait()
		if got := p.Add(nil); len(got) != 1 || got[0].Job != 7 || got[0].Attempt != 2 || !got[0].Probe.Ok || asked() != 1 {
			t.Errorf("after the first answer: %v, asked %d times", got, asked())
		}
		time.Sleep(21 * time.Second)
		if asked() != 5 {
			t.Errorf("in 21 seconds it was asked %d times", asked())
		}
		answer(errors.New("no\xffanswer" + strings.Repeat("x", 500)))
		time.Sleep(20 * time.Second)
		uses := p.Add([]*nodev1.AttemptUse{{Job: 7, Attempt: 2, PeakMib: 9}, {Job: 8, Attempt: 1}})
		if probe := uses[0].GetProbe(); len(uses) != 2 || uses[0].PeakMib != 9 || probe.GetOk() || probe.GetFails() != 4 || len(probe.GetWhy()) > 160 || !strings.HasPrefix(probe.GetWhy(), "noanswer") || uses[1].Probe != nil {
			t.Errorf("after failures: %v", uses)
		}
		answer(nil)
		time.Sleep(5 * time.Second)
		if probe := p.Add(nil)[0].Probe; !probe.Ok || probe.Fails != 0 {
			t.Errorf("well again: %v", probe)
		}
		p.End(id)
		p.End(id)
		was := asked()
		time.Sleep(time.Minute)
		if got := p.Add(nil); got != nil || asked() != was {
			t.Errorf("after its end: %v, asked %d times more", got, asked()-was)
		}
		answer(errors.New("it starts"))
		p.Begin(id, 1000, r)
		was = asked()
		time.Sleep(3500 * time.Millisecond)
		if n := asked() - was; n != 3 {
			t.Errorf("while it starts it was asked %d times in three seconds", n)
		}
		p.Close()
	})
}
