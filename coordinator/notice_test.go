package coordinator_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/notify"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// receiver is a webhook's other end, which fails when it is told to.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	fail   int // so many more times
	calls  int
	events []notify.Event
	signed bool // the last one was, by secret
	secret []byte
}

func newReceiver(t *testing.T, fail int) *receiver {
	r := &receiver{fail: fail}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.calls++; r.fail > 0 {
			r.fail--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var p notify.Payload
		if json.Unmarshal(body, &p) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var at int64
		if n, _ := fmt.Sscanf(q.Header.Get(notify.HeaderSignature), "t=%d,", &at); n == 1 {
			r.signed = notify.Sign(r.secret, body, time.Unix(at, 0)) == q.Header.Get(notify.HeaderSignature)
		}
		r.events = append(r.events, p.Events...)
	}))
	t.Cleanup(r.Close)
	return r
}

// seen counts how often each event of each job arrived, by its id and by what it is.
func (r *receiver) seen() (byID, byWhat map[string]int, calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byID, byWhat = map[string]int{}, map[string]int{}
	for _, e := range r.events {
		byID[e.ID]++
		byWhat[fmt.Sprintf("%s %d", e.Event, e.Job.ID)]++
	}
	return byID, byWhat, r.calls
}

// mailbox is a stand-in for sendmail that keeps each mail in a file of its own.
func mailbox(t *testing.T) (program, dir string) {
	t.Helper()
	dir = t.TempDir()
	program = filepath.Join(dir, "sendmail")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ncat >"+dir+"/new.$$ && mv "+dir+"/new.$$ "+dir+"/mail.$$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, dir
}

func subjects(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "mail.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "\nSubject: ")
		subject, _, _ := strings.Cut(rest, "\n")
		out = append(out, subject)
	}
	return out
}

func notices(program string) notify.Notices {
	return notify.Notices{
		Mail:     notify.Mailer{Program: program, Sender: "berth@example.org"},
		Webhooks: notify.WebhooksUsers, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, FirstPause: 50 * time.Millisecond,
	}
}

// addWebhook adds one of alice's once every coordinator is known to read of it.
func addWebhook(t *testing.T, cc *grpc.ClientConn, req *apiv1.AddWebhookRequest) *apiv1.AddWebhookResponse {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		added, err := apirpc.NewNotifyServiceClient(cc).AddWebhook(as(t, alice), req)
		if err == nil {
			return added
		}
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestNoNoticeIsLostThoughTheLeaderDies: a job's end reaches a webhook that fails
// twice and an address, though the leader dies after the first failure.
func TestNoNoticeIsLostThoughTheLeaderDies(t *testing.T) {
	t.Parallel()
	program, dir := mailbox(t)
	n := notices(program)
	n.FirstPause = 300 * time.Millisecond
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, Notices: n})
	l := c.Leader()
	cc := c.Dial(l, "gate", "g")
	rec := newReceiver(t, 2)
	added := addWebhook(t, cc, &apiv1.AddWebhookRequest{Url: rec.URL, Events: "END,FAIL"})
	rec.mu.Lock()
	rec.secret = added.Secret
	rec.mu.Unlock()
	const jobs = 20
	s := spec(0)
	s.MailType = "END"
	var all []*apiv1.JobSpec
	for range jobs {
		all = append(all, s)
	}
	ids := submitted(t, cc, alice, reqID(1), all...)
	if _, err := apirpc.NewJobServiceClient(cc).CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: ids}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the webhook is called", func() bool { _, _, calls := rec.seen(); return calls > 0 })
	c.Kill(l)
	live := c.Dial(c.Leader(), "gate", "g")
	eventually(t, "each end arrives", func() bool { _, what, _ := rec.seen(); return len(what) == jobs })
	eventually(t, "nothing waits", func() bool {
		r, err := apirpc.NewNotifyServiceClient(live).ListWebhooks(as(t, admin), &apiv1.ListWebhooksRequest{})
		return err == nil && len(r.Webhooks) == 1 && r.Webhooks[0].Waiting == 0 && r.Webhooks[0].Sent == jobs && r.MailsWaiting == 0 && r.MailsSent == jobs
	})
	byID, _, _ := rec.seen()
	if len(byID) != jobs {
		t.Errorf("%d ids for %d ends", len(byID), jobs)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if !rec.signed {
		t.Error("the last request was not signed by the secret that was shown")
	}
	if got := subjects(t, dir); len(got) == 0 {
		t.Error("no mail came")
	}
}

// TestOneJobsNotices follows one job: mails and events for its start, the marks
// of its time limit, and its end, each once.
func TestOneJobsNotices(t *testing.T) {
	t.Parallel()
	program, dir := mailbox(t)
	var clock ahead
	c := coordtest.Start(t, coordtest.Options{N: 1, Notices: notices(program), Clock: clock.now, Lease: 2 * time.Hour})
	a := c.Agent(0, "n1", "boot1", coordtest.T4("GPU-1"))
	cc := c.Dial(0, "gate", "g")
	rec := newReceiver(t, 0)
	if _, err := apirpc.NewNotifyServiceClient(cc).AddWebhook(as(t, alice), &apiv1.AddWebhookRequest{Url: rec.URL, Events: "ALL,TIME_LIMIT_50"}); err != nil {
		t.Fatal(err)
	}
	s := spec(1000)
	s.Name, s.MailType, s.TimeLimit = "train", "ALL,TIME_LIMIT_80", durationpb.New(time.Hour)
	ids := submitted(t, cc, alice, reqID(1), s)
	one := next(t, a)
	a.Report(one, running, 0)
	eventually(t, "its start is told", func() bool { _, what, _ := rec.seen(); return len(what) == 1 && len(subjects(t, dir)) == 1 })
	clock.by.Store(int64(50 * time.Minute))
	eventually(t, "its marks are told", func() bool { _, what, _ := rec.seen(); return len(what) == 2 && len(subjects(t, dir)) == 2 })
	a.Report(one, failed, 3)
	eventually(t, "its end is told", func() bool { _, what, _ := rec.seen(); return len(what) == 3 && len(subjects(t, dir)) == 3 })
	_, what, _ := rec.seen()
	for _, want := range []string{"begin", "time_limit_50", "fail"} {
		if what[fmt.Sprintf("%s %d", want, ids[0])] != 1 {
			t.Errorf("%s: %v", want, what)
		}
	}
	got := strings.Join(subjects(t, dir), "\n")
	for _, want := range []string{"Name=train Began", "Reached 80% of time limit", "Name=train Failed"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, got)
		}
	}
}

// TestWhoMayHaveWebhooks: users have their own, and see no others.
func TestWhoMayHaveWebhooks(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Notices: notices("")})
	cc := c.Dial(0, "gate", "g")
	svc := apirpc.NewNotifyServiceClient(cc)
	add := func(uid uint32, r *apiv1.AddWebhookRequest) (*apiv1.AddWebhookResponse, error) {
		return svc.AddWebhook(as(t, uid), r)
	}
	ok := &apiv1.AddWebhookRequest{Url: "https://example.org/x", Events: "END"}
	mine, err := add(alice, ok)
	if err != nil || !strings.HasPrefix(string(mine.Secret), "whsec_") || len(mine.Secret) < 30 {
		t.Fatalf("%v, %v", mine, err)
	}
	for name, x := range map[string]struct {
		uid  uint32
		r    *apiv1.AddWebhookRequest
		want codes.Code
	}{
		"all, by a user":           {alice, &apiv1.AddWebhookRequest{Url: ok.Url, Events: "END", All: true}, codes.PermissionDenied},
		"all, by an administrator": {admin, &apiv1.AddWebhookRequest{Url: ok.Url, Events: "END", All: true}, codes.OK},
		"no events":                {alice, &apiv1.AddWebhookRequest{Url: ok.Url, Events: "NONE"}, codes.InvalidArgument},
		"unknown events":           {alice, &apiv1.AddWebhookRequest{Url: ok.Url, Events: "bogus"}, codes.InvalidArgument},
		"a file":                   {alice, &apiv1.AddWebhookRequest{Url: "file:///etc/passwd", Events: "END"}, codes.InvalidArgument},
		"a short secret":           {alice, &apiv1.AddWebhookRequest{Url: ok.Url, Events: "END", Secret: []byte("x")}, codes.InvalidArgument},
	} {
		if _, err := add(x.uid, x.r); status.Code(err) != x.want {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}
	list := func(uid uint32) int {
		r, err := svc.ListWebhooks(as(t, uid), &apiv1.ListWebhooksRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.String(), string(mine.Secret)) {
			t.Error("a listing shows a secret")
		}
		return len(r.Webhooks)
	}
	if a, b, all := list(alice), list(bob), list(admin); a != 1 || b != 0 || all != 2 {
		t.Errorf("alice sees %d, bob %d, an administrator %d", a, b, all)
	}
	if _, err := svc.RemoveWebhook(as(t, bob), &apiv1.RemoveWebhookRequest{Id: mine.Webhook.Id}); status.Code(err) != codes.NotFound {
		t.Errorf("another's: %v", err)
	}
	if _, err := svc.RemoveWebhook(as(t, alice), &apiv1.RemoveWebhookRequest{Id: mine.Webhook.Id}); err != nil {
		t.Error(err)
	}
	s := spec(0)
	s.MailType = "END"
	r, err := apirpc.NewJobServiceClient(cc).SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(1), Jobs: []*apiv1.JobSpec{s}})
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "notify.sendmail") {
		t.Errorf("mail where none is sent: %v, %v", r, err)
	}
}

// TestWebhooksMayBeOff where the site says so.
func TestWebhooksMayBeOff(t *testing.T) {
	t.Parallel()
	for users, want := range map[notify.WebhookUsers]codes.Code{notify.WebhooksOff: codes.PermissionDenied, notify.WebhooksAdmins: codes.OK} {
		c := coordtest.Start(t, coordtest.Options{N: 1, Notices: notify.Notices{Webhooks: users}})
		svc := apirpc.NewNotifyServiceClient(c.Dial(0, "gate", "g"))
		req := &apiv1.AddWebhookRequest{Url: "https://example.org/x", Events: "END"}
		if _, err := svc.AddWebhook(as(t, admin), req); status.Code(err) != want {
			t.Errorf("an administrator: %v, want %s", err, want)
		}
		if _, err := svc.AddWebhook(as(t, alice), req); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a user: %v", err)
		}
	}
}

// eventually polls until ok, for two minutes at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in two minutes not: %s", what)
		}
	}
}

// ahead is a clock that a test puts forward.
type ahead struct{ by atomic.Int64 }

func (a *ahead) now() time.Time { return time.Now().Add(time.Duration(a.by.Load())) }
