package notifycmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewWebhookCmd returns the command webhook.
func NewWebhookCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhook", Short: "Post job events to a URL as JSON",
		Long: "Post your jobs' events to a URL as signed JSON, retried until delivered.\n" +
			"docs/notifications.md has the format and how to verify the signature.",
		Example: "  berth webhook add https://example.org/berth --events end,fail\n  berth webhook list\n  berth webhook dead",
	}
	cmd.AddCommand(newListCmd(e, c), newAddCmd(e, c), newRemoveCmd(e, c), newDeadCmd(e, c))
	return cmd
}

type webhookView struct {
	ID       uint64     `json:"id"`
	URL      string     `json:"url"`
	Events   string     `json:"events"`
	User     string     `json:"user"`
	All      bool       `json:"all"`
	Created  *time.Time `json:"created"`
	Sent     uint64     `json:"sent"`
	Dead     uint64     `json:"dead"`
	Waiting  uint64     `json:"waiting"`
	LastSent *time.Time `json:"last_sent"`
}

func viewWebhook(h *apiv1.Webhook) webhookView {
	return webhookView{h.GetId(), h.GetUrl(), h.GetEvents(), h.GetUser(), h.GetAll(), view.Stamp(h.GetCreated()), h.GetSent(), h.GetDead(), h.GetWaiting(), view.Stamp(h.GetLastSent())}
}

type listView struct {
	Webhooks []webhookView `json:"webhooks"`
	Mail     mailView      `json:"mail"`
	Lost     uint64        `json:"lost"`
}

type mailView struct {
	On      bool   `json:"on"`
	Sent    uint64 `json:"sent"`
	Dead    uint64 `json:"dead"`
	Waiting uint64 `json:"waiting"`
}

func newListCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your webhooks (administrators: all)",
		Example: "  berth webhook list", Args: cobra.NoArgs,
	}, client.Bound(e, c, runList), console.FormatTable, console.FormatJSON, console.FormatYAML)
}

func runList(ctx context.Context, e *console.Env, c *client.Client, f console.Format, _ []string) error {
	resp, err := client.ListWebhooks.Ask(ctx, c, client.Reads, &apiv1.ListWebhooksRequest{})
	if err != nil {
		return err
	}
	v := listView{Webhooks: []webhookView{}, Mail: mailView{resp.GetMail(), resp.GetMailsSent(), resp.GetMailsDead(), resp.GetMailsWaiting()}, Lost: resp.GetLost()}
	t := &console.Table{Cols: []console.Column{
		{Head: "ID", Right: true}, {Head: "USER"}, {Head: "JOBS"}, {Head: "SENT", Right: true}, {Head: "WAITING", Right: true}, {Head: "DEAD", Right: true},
		{Head: "EVENTS", Shrink: true}, {Head: "URL", Shrink: true},
	}}
	for _, h := range resp.GetWebhooks() {
		v.Webhooks = append(v.Webhooks, viewWebhook(h))
		whose := "own"
		if h.GetAll() {
			whose = "all"
		}
		t.Add(strconv.FormatUint(h.GetId(), 10), h.GetUser(), whose, strconv.FormatUint(h.GetSent(), 10), strconv.FormatUint(h.GetWaiting(), 10),
			strconv.FormatUint(h.GetDead(), 10), strings.ToLower(h.GetEvents()), h.GetUrl())
	}
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	if len(v.Webhooks) == 0 {
		e.Warnf("there are no webhooks; create one with: berth webhook add URL --events end,fail")
	} else {
		t.Print(e)
	}
	if m := v.Mail; m.Sent+m.Dead+m.Waiting > 0 {
		e.Printf("mail: %d sent, %d waiting, %d given up\n", m.Sent, m.Waiting, m.Dead)
	}
	if v.Lost > 0 {
		e.Printf("%d notices were dropped, because too many were waiting\n", v.Lost)
	}
	return nil
}

type addOptions struct {
	events, secretFile string
	user, all          bool
}

func newAddCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o addOptions
	cmd := &cobra.Command{
		Use: "add URL [flags]", Short: "Add a webhook and print its signing secret",
		Long: "Add a webhook and print the secret that signs its requests. The secret is never shown again: if you\n" +
			"lose it, remove the webhook and add it anew.",
		Example: "  berth webhook add https://example.org/berth --events end,fail\n" +
			"  berth webhook add https://ops.example.org/berth --events ALL --all --secret-file key",
		Args: console.OneArg("address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAdd(cmd.Context(), e, c, &o, args[0])
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.events, "events", "end", "`EVENTS` to post: all or some of begin, end, fail, requeue, invalid_depend, time_limit, time_limit_90, _80, _50 and idle")
	fs.BoolVar(&o.user, "user", false, "for your own jobs (the default)")
	fs.BoolVar(&o.all, "all", false, "for everyone's jobs (administrators only)")
	fs.StringVar(&o.secretFile, "secret-file", "", "`FILE` with the secret, 16 to 128 bytes; by default one is generated")
	fs.SortFlags = false
	return cmd
}

func runAdd(ctx context.Context, e *console.Env, c *client.Client, o *addOptions, url string) error {
	events, err := cluster.ParseMailEvents(o.events)
	if err != nil {
		return console.Usagef("--events: %w", err)
	}
	if o.user && o.all {
		return console.Usagef("--user and --all: give only one of them")
	}
	req := &apiv1.AddWebhookRequest{Url: url, Events: events.String(), All: o.all}
	if o.secretFile != "" {
		text, err := console.ReadBounded(o.secretFile, 1024)
		if err != nil {
			return console.Usagef("--secret-file: %w", err)
		}
		req.Secret = []byte(strings.TrimSpace(string(text)))
		if n := len(req.Secret); n < 16 || n > 128 {
			return console.Usagef("--secret-file: %d bytes, want 16 to 128", n)
		}
	}
	resp, err := client.AddWebhook.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return console.UnknownChange(err, "Check whether it exists: berth webhook list")
	}
	h := resp.GetWebhook()
	e.Warnf("webhook %d tells %s of %s", h.GetId(), console.Escape(h.GetUrl()), strings.ToLower(h.GetEvents()))
	if o.secretFile == "" {
		e.Warnf("its secret follows; it is never shown again")
		e.Printf("%s\n", console.Escape(string(resp.GetSecret())))
	}
	return nil
}

func newRemoveCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "remove ID", Aliases: []string{"rm"}, Short: "Remove a webhook and its undelivered events",
		Example: "  berth webhook remove 3", Args: console.OneArg("webhook id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || id == 0 {
				return console.Usagef("webhook %s: want a number shown by berth webhook list", console.ShortQuote(args[0]))
			}
			_, err = client.RemoveWebhook.Ask(cmd.Context(), c, client.Changes, &apiv1.RemoveWebhookRequest{Id: id})
			if err != nil {
				return console.UnknownChange(err, "Check whether it still exists: berth webhook list")
			}
			e.Printf("webhook %d: removed\n", id)
			return nil
		},
	}
}

type deadView struct {
	Job     uint64     `json:"job"`
	Name    string     `json:"name"`
	User    string     `json:"user"`
	Event   string     `json:"event"`
	At      *time.Time `json:"at"`
	Webhook uint64     `json:"webhook"`
	To      string     `json:"to"`
	Error   string     `json:"error"`
	GivenUp *time.Time `json:"given_up"`
}

func newDeadCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "dead", Short: "List undelivered events, mail included, newest first",
		Example: "  berth webhook dead", Args: cobra.NoArgs,
	}, client.Bound(e, c, runDead), console.FormatTable, console.FormatJSON, console.FormatYAML)
}

func runDead(ctx context.Context, e *console.Env, c *client.Client, f console.Format, _ []string) error {
	resp, err := client.ListDeadNotices.Ask(ctx, c, client.Reads, &apiv1.ListDeadNoticesRequest{})
	if err != nil {
		return err
	}
	views := []deadView{}
	t := &console.Table{Cols: []console.Column{{Head: "JOB", Right: true}, {Head: "NAME", Shrink: true}, {Head: "EVENT"}, {Head: "AT"}, {Head: "TO"}, {Head: "ERROR", Shrink: true}}}
	for _, d := range resp.GetNotices() {
		views = append(views, deadView{
			d.GetJob(), d.GetName(), d.GetUser(), d.GetEvent(), view.Stamp(d.GetAt()), d.GetWebhook(), d.GetTo(), d.GetError(), view.Stamp(d.GetGivenUp()),
		})
		to := fmt.Sprintf("webhook %d", d.GetWebhook())
		if d.GetWebhook() == 0 {
			to = "mail"
			if d.GetTo() != "" {
				to += " " + d.GetTo()
			}
		}
		t.Add(strconv.FormatUint(d.GetJob(), 10), d.GetName(), strings.ToLower(d.GetEvent()), console.When(e, d.GetAt()), to, d.GetError())
	}
	if done, err := console.PrintList(e, f, views); done {
		return err
	}
	if len(views) == 0 {
		e.Warnf("no undelivered events")
		return nil
	}
	t.Print(e)
	return nil
}
