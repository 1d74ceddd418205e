package serviceproxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serving is a proxy before some replicas, each of which answers its number.
type serving struct {
	proxy    *Proxy
	front    *httptest.Server
	replicas []*httptest.Server
	served   []atomic.Int64
}

func serve(t *testing.T, n int, handle func(i int, w http.ResponseWriter, r *http.Request)) *serving {
	s := &serving{served: make([]atomic.Int64, n)}
	var addrs []string
	for i := range n {
		r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.served[i].Add(1)
			handle(i, w, r)
		}))
		t.Cleanup(r.Close)
		s.replicas = append(s.replicas, r)
		addrs = append(addrs, r.Listener.Addr().String())
	}
	s.proxy = New(nil, slog.New(slog.DiscardHandler))
	s.proxy.set(addrs)
	s.front = httptest.NewServer(s.proxy)
	t.Cleanup(s.front.Close)
	return s
}

func (s *serving) ask(t *testing.T, method, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.front.URL+"/x?y=z", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "chat.example"
	resp, err := s.front.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// settle waits until just so many requests are in flight.
func (s *serving) settle(n int) {
	for {
		s.proxy.mu.Lock()
		sum := 0
		for _, r := range s.proxy.there {
			sum += r.inFlight
		}
		s.proxy.mu.Unlock()
		if sum == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestHandsOn what is asked, as it was asked, to the replica with the fewest in flight.
func TestHandsOn(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var held sync.WaitGroup
	held.Add(1)
	var once sync.Once
	s := serve(t, 2, func(_ int, w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "hold" {
			once.Do(held.Done)
			<-hold
		}
		_, _ = io.WriteString(w, r.Method+" "+r.Host+r.URL.String()+" "+string(body)+" "+r.Header.Get("X-Forwarded-Host"))
	})
	if code, got := s.ask(t, http.MethodPost, "abc"); code != 200 || got != "POST chat.example/x?y=z abc chat.example" {
		t.Errorf("%d %s", code, got)
	}
	var done sync.WaitGroup
	done.Go(func() { s.ask(t, http.MethodPost, "hold") })
	held.Wait()
	s.settle(1)
	s.proxy.mu.Lock()
	busy := s.proxy.there[1].inFlight
	s.proxy.mu.Unlock()
	was := s.served[busy].Load()
	for range 10 {
		s.ask(t, http.MethodGet, "")
		s.settle(1)
	}
	if got := s.served[busy].Load(); got != was {
		t.Errorf("the busy one was handed %d more", got-was)
	}
	close(hold)
	done.Wait()
	s.settle(0)
}

// TestReplicasGo: what one that is gone did not take goes to the others, also a POST; one that
// breaks off fails a POST and no GET.
func TestReplicasGo(t *testing.T) {
	t.Parallel()
	breaks := atomic.Bool{}
	s := serve(t, 3, func(i int, w http.ResponseWriter, r *http.Request) {
		if breaks.Load() && i == 1 {
			if r.Method == http.MethodGet { // in the middle of its answer
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "begins")
				w.(http.Flusher).Flush()
			}
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "all of it")
	})
	s.replicas[0].Close()
	for range 20 {
		if code, _ := s.ask(t, http.MethodPost, "abc"); code != 200 {
			t.Fatalf("a POST while one is gone: %d", code)
		}
	}
	breaks.Store(true)
	for range 20 {
		if code, body := s.ask(t, http.MethodGet, ""); code != 200 || body != "all of it" {
			t.Fatalf("a GET while one breaks off: %d %s", code, body)
		}
	}
	s.proxy.mu.Lock()
	for _, r := range s.proxy.there {
		r.avoid = time.Time{}
	}
	s.proxy.there = s.proxy.there[1:2]
	s.proxy.mu.Unlock()
	if code, body := s.ask(t, http.MethodPost, "abc"); code != http.StatusBadGateway || !strings.Contains(body, "did not answer") {
		t.Errorf("a POST that is broken off: %d %s", code, body)
	}
	s.proxy.set(nil)
	if code, body := s.ask(t, http.MethodGet, ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "no replica of the service is ready") {
		t.Errorf("without replicas: %d %s", code, body)
	}
}

// TestFollow: the list is asked each second, and the last one stands while nobody answers.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		addrs, fault := []string{"a:1", "b:2"}, error(nil)
		p := New(func(context.Context) (There, error) {
			mu.Lock()
			defer mu.Unlock()
			return There{Addrs: addrs}, fault
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { p.Follow(ctx); close(done) }()
		there := func() (out []string) {
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, r := range p.there {
				out = append(out, r.addr)
			}
			return out
		}
		change := func(to []string, err error) {
			mu.Lock()
			defer mu.Unlock()
			addrs, fault = to, err
		}
		if got := there(); len(got) != 2 {
			t.Errorf("at first: %v", got)
		}
		first := p.there[1]
		change(nil, errors.New("no leader"))
		time.Sleep(3 * time.Second)
		if got := there(); len(got) != 2 {
			t.Errorf("while nobody answers: %v", got)
		}
		change([]string{"b:2", "c:3"}, nil)
		time.Sleep(2 * time.Second)
		if got := there(); len(got) != 2 || p.there[0] != first || got[1] != "c:3" {
			t.Errorf("then: %v", got)
		}
		cancel()
		<-done
	})
}
