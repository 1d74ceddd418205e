package notifycmd_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// hooked is a server with webhooks.
type hooked struct {
	apirpc.UnimplementedNotifyServiceServer
	none  bool
	added *apiv1.AddWebhookRequest
}

func (h *hooked) ListWebhooks(context.Context, *apiv1.ListWebhooksRequest) (*apiv1.ListWebhooksResponse, error) {
	if h.none {
		return &apiv1.ListWebhooksResponse{}, nil
	}
	at := timestamppb.New(clitest.Now)
	return &apiv1.ListWebhooksResponse{Mail: true, MailsSent: 120, MailsDead: 2, MailsWaiting: 1, Lost: 7, Webhooks: []*apiv1.Webhook{
		{Id: 1, Url: "https://example.org/berth", Events: "END,FAIL", User: "ann", Uid: 1000, Created: at, Sent: 12, LastSent: at},
		{Id: 4, Url: "https://ops.example.org/\x1b[31m", Events: "BEGIN", User: "root", All: true, Created: at, Dead: 3, Waiting: 100},
	}}, nil
}

func (h *hooked) AddWebhook(_ context.Context, r *apiv1.AddWebhookRequest) (*apiv1.AddWebhookResponse, error) {
	h.added = r
	return &apiv1.AddWebhookResponse{Webhook: &apiv1.Webhook{Id: 5, Url: r.GetUrl(), Events: r.GetEvents()}, Secret: []byte("whsec_7JXQ")}, nil
}

func (h *hooked) RemoveWebhook(_ context.Context, r *apiv1.RemoveWebhookRequest) (*apiv1.RemoveWebhookResponse, error) {
	if r.GetId() != 1 {
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "webhook %d is not known; see: berth webhook list", r.GetId())).Err()
	}
	return &apiv1.RemoveWebhookResponse{}, nil
}

func (h *hooked) ListDeadNotices(context.Context, *apiv1.ListDeadNoticesRequest) (*apiv1.ListDeadNoticesResponse, error) {
	if h.none {
		return &apiv1.ListDeadNoticesResponse{}, nil
	}
	at := timestamppb.New(clitest.Now)
	return &apiv1.ListDeadNoticesResponse{Notices: []*apiv1.DeadNotice{
		{Job: 40, Name: "train", User: "ann", Event: "FAIL", At: at, Webhook: 4, Error: "answered 500 Internal Server Error", GivenUp: at},
		{Job: 39, Name: "eval", User: "bob", Event: "END", At: at, To: "bob@example.net", Error: "not sent: this site sends no mail to example.net", GivenUp: at},
	}}, nil
}

func serveHooked(w *clitest.World, socket string, h *hooked) {
	l, s := bufconn.Listen(1<<20), grpc.NewServer()
	apirpc.RegisterNotifyServiceServer(s, h)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	w.T.Cleanup(func() { s.Stop(); wg.Wait() })
	w.Sockets[socket] = l
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"webhook-list":         {"webhook", "list"},
		"webhook-list-json":    {"webhook", "list", "-o", "json"},
		"webhook-dead":         {"webhook", "dead"},
		"webhook-dead-json":    {"webhook", "dead", "-o", "json"},
		"webhook-add":          {"webhook", "add", "https://example.org/berth", "--events", "end,fail"},
		"webhook-add-bad":      {"webhook", "add", "https://example.org/berth", "--events", "bogus"},
		"webhook-add-both":     {"webhook", "add", "https://example.org/berth", "--user", "--all"},
		"webhook-remove":       {"webhook", "remove", "1"},
		"webhook-remove-none":  {"webhook", "remove", "9"},
		"webhook-remove-no-id": {"webhook", "remove", "x"},
		"help-webhook":         {"webhook", "--help"},
		"help-webhook-add":     {"webhook", "add", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			serveHooked(w, "/a", &hooked{})
			golden.Check(t, name, w.Transcript(args...))
		})
	}
	w := clitest.NewWorld(t)
	serveHooked(w, "/a", &hooked{none: true})
	golden.Check(t, "webhook-none", w.Transcript("webhook", "list")+w.Transcript("webhook", "dead"))
}

// TestSecretOfAFile: it is sent as it stands there, and not printed.
func TestSecretOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, h := clitest.NewWorld(t), &hooked{}
	serveHooked(w, "/a", h)
	if code := w.Run("webhook", "add", "https://example.org/x", "--events", "all", "--all", "--secret-file", path); code != 0 {
		t.Fatalf("exit %d: %s", code, w.Errs.String())
	}
	if string(h.added.GetSecret()) != "0123456789abcdef" || !h.added.GetAll() || w.Out.Len() != 0 {
		t.Errorf("%v, printed %q", h.added, w.Out.String())
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := w.Run("webhook", "add", "https://example.org/x", "--secret-file", path); code != 2 {
		t.Errorf("a short secret ends as %d", code)
	}
}
