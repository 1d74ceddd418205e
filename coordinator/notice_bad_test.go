package coordinator_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestNoticesAmongBadReceivers: receivers that are dead, answer 500 or send
// elsewhere are given up with the reason, and hold up nobody; one that hangs gets
// its events once it answers, from another leader than the one that began, with
// the ids that they had.
func TestNoticesAmongBadReceivers(t *testing.T) {
	t.Parallel()
	program, _ := mailbox(t)
	n := notices(program)
	n.FirstPause, n.Tries = 2*time.Millisecond, 8
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, Notices: n})
	lead := c.Leader()
	good, hangs := newReceiver(t, 0), newReceiver(t, 0)
	followed := newReceiver(t, 0)
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, followed.URL, http.StatusPermanentRedirect)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(bad.Close)
	free, asked := make(chan struct{}), make(chan struct{}, 1000)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-free
		hangs.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)
	let := sync.OnceFunc(func() { close(free) })
	t.Cleanup(let)
	urls := map[string]string{"good": good.URL, "hangs": slow.URL, "dead": "http://127.0.0.1:1/", "500": bad.URL + "/500", "away": bad.URL + "/away"}
	ids := map[uint64]string{}
	svc := apirpc.NewNotifyServiceClient(c.Dial(lead, "gate", "g"))
	for name, url := range urls {
		eventually(t, "a webhook is added", func() bool {
			r, err := svc.AddWebhook(as(t, alice), &apiv1.AddWebhookRequest{Url: url, Events: "END"})
			if err == nil {
				ids[r.Webhook.Id] = name
			}
			return err == nil
		})
	}

	const jobs = 12
	s := spec(0)
	s.MailType = "END"
	var all []*apiv1.JobSpec
	for range jobs {
		all = append(all, s)
	}
	cc := c.Dial(lead, "gate", "g")
	submitted := submitted(t, cc, alice, reqID(1), all...)
	if _, err := apirpc.NewJobServiceClient(cc).CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: submitted}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the one that hangs is asked", func() bool { return len(asked) > 0 }) // and nothing is noted of it
	c.Kill(lead)
	svc = apirpc.NewNotifyServiceClient(c.Dial(c.Leader(), "gate", "g"))

	stand := func() (by map[string]*apiv1.Webhook, r *apiv1.ListWebhooksResponse) {
		r, err := svc.ListWebhooks(as(t, admin), &apiv1.ListWebhooksRequest{})
		if err != nil {
			return nil, nil
		}
		by = map[string]*apiv1.Webhook{}
		for _, h := range r.Webhooks {
			by[ids[h.Id]] = h
		}
		return by, r
	}
	eventually(t, "all but the one that hangs are done", func() bool {
		by, r := stand()
		return by != nil && by["good"].Sent == jobs && r.MailsSent == jobs && by["dead"].Dead == jobs && by["500"].Dead == jobs && by["away"].Dead == jobs
	})
	if by, _ := stand(); by["hangs"].Sent != 0 || by["hangs"].Waiting+by["hangs"].Dead != jobs {
		t.Fatalf("the one that hangs: %v", by["hangs"])
	}
	let()
	eventually(t, "the one that hung got all", func() bool { by, _ := stand(); return by != nil && by["hangs"].Sent == jobs })
	for name, r := range map[string]*receiver{"good": good, "hangs": hangs} {
		byID, what, _ := r.seen()
		if len(byID) != jobs || len(what) != jobs {
			t.Errorf("%s: %d ids of %d ends, want %d of each", name, len(byID), len(what), jobs)
		}
	}
	if _, what, _ := followed.seen(); len(what) > 0 {
		t.Error("a redirect was followed")
	}
	dead, err := svc.ListDeadNotices(as(t, admin), &apiv1.ListDeadNoticesRequest{})
	if err != nil || len(dead.Notices) != 3*jobs {
		t.Fatalf("%d notices are given up, want %d: %v", len(dead.GetNotices()), 3*jobs, err)
	}
	for _, d := range dead.Notices {
		want := map[string]string{"dead": "refused", "500": "500 Internal", "away": "redirects are not followed"}[ids[d.Webhook]]
		if want == "" || !strings.Contains(d.Error, want) {
			t.Errorf("%s was given up for %q, want %q", ids[d.Webhook], d.Error, want)
		}
	}
}
