package notify

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// loopback allows the servers of these tests.
func loopback() *Guard { return &Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}} }

func TestPost(t *testing.T) {
	t.Parallel()
	var head http.Header
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		head = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer srv.Close()
	p := NewPoster("lab", "lab-1", loopback())
	defer p.Close()
	h := &logv1.Webhook{Id: 3, Url: srv.URL, Secret: []byte("0123456789abcdef")}
	task := notice(func(n *logv1.Notice) {
		n.Seq, n.Event, n.ArrayJob, n.ArrayTask = 8, uint32(cluster.MailTimeLimit50), 9, 0
	})
	if err := p.Post(t.Context(), h, []*logv1.Notice{notice(nil), task}, testNow); err != nil {
		t.Fatal(err)
	}
	if got := head.Get(HeaderSignature); got != Sign(h.Secret, body, testNow) || !strings.HasPrefix(got, "t=1773500966,v1=") || len(got) != 15+1+64 {
		t.Errorf("signature %q", got)
	}
	if head.Get(HeaderWebhook) != "3" || head.Get("Content-Type") != "application/json" {
		t.Errorf("%v", head)
	}
	var got Payload
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	zero := uint32(0)
	want := Payload{Version: 1, Cluster: "lab", Webhook: 3, Events: []Event{
		{ID: "lab-1-7", Event: "end", Time: testNow, Text: Subject(notice(nil)), Job: EventJob{
			ID: 12, Attempt: 1, Name: "train", User: "ann", Partition: "gpu", State: "COMPLETED", ExitCode: code(0), Nodes: "n[1-2]", QueuedSeconds: 61, RunSeconds: 10,
		}},
		{ID: "lab-1-8", Event: "time_limit_50", Time: testNow, Text: Subject(task), Job: EventJob{
			ID: 12, ArrayID: 9, ArrayTask: &zero, Attempt: 1, Name: "train", User: "ann", Partition: "gpu", State: "COMPLETED", ExitCode: code(0), Nodes: "n[1-2]", QueuedSeconds: 61, RunSeconds: 10,
		}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestSignIsHMAC: the value is one that anybody can compute, printf '%s' '1.{}' |
// openssl dgst -sha256 -hmac key.
func TestSignIsHMAC(t *testing.T) {
	t.Parallel()
	want := "t=1,v1=1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224"
	if got := Sign([]byte("key"), []byte("{}"), time.Unix(1, 0)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPostFails(t *testing.T) {
	t.Parallel()
	followed := false
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer target.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/created":
			w.WriteHeader(http.StatusCreated)
		default:
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, strings.Repeat("x", 1<<20))
		}
	}))
	defer srv.Close()
	for _, c := range []struct {
		url, want string
		guard     *Guard
		final     bool
	}{
		{srv.URL + "/created", "", loopback(), false},
		{srv.URL + "/redirect", "redirects are not followed", loopback(), false},
		{srv.URL + "/gone", "410 Gone", loopback(), true},
		{srv.URL + "/", "500 Internal Server Error", loopback(), false},
		{srv.URL + "/created", "belongs to this machine", &Guard{}, true},
		{strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) + "/created", "belongs to this machine", &Guard{}, true},
		{"http://127.0.0.1:1/", "refused", loopback(), false},
	} {
		p := NewPoster("lab", "lab-1", c.guard)
		err := p.Post(t.Context(), &logv1.Webhook{Id: 1, Url: c.url, Secret: []byte("s")}, []*logv1.Notice{notice(nil)}, testNow)
		p.Close()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errForGood) != c.final) {
			t.Errorf("%s: %v, want %q, final %t", c.url, err, c.want, c.final)
		}
	}
	if followed {
		t.Error("a redirect was followed")
	}
}
