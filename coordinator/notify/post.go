package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	postTimeout = 10 * time.Second
	mostInPost  = 100
	mostAnswer  = 64 << 10
)

// Headers of a request.
const (
	// HeaderSignature is t=UNIX,v1=HEX: the HMAC-SHA256, by the webhook's secret,
	// of the decimal UNIX, a dot, and the body.
	HeaderSignature = "Berth-Signature"
	// HeaderWebhook is the webhook's id.
	HeaderWebhook = "Berth-Webhook"
)

// Payload is the JSON body of a request.
type Payload struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	Webhook uint64 `json:"webhook"`
	// Events are oldest first, 1 to 100.
	Events []Event `json:"events"`
}

// Event is one thing that happened. ID is the same whenever it is sent again.
type Event struct {
	ID    string    `json:"id"`
	Event string    `json:"event"`
	Time  time.Time `json:"time"`
	Text  string    `json:"text"`
	Job   EventJob  `json:"job"`
}

// EventJob is the job of an event as it was then.
type EventJob struct {
	ID            uint64  `json:"id"`
	ArrayID       uint64  `json:"array_id,omitempty"`
	ArrayTask     *uint32 `json:"array_task,omitempty"`
	Attempt       uint32  `json:"attempt"`
	Name          string  `json:"name"`
	User          string  `json:"user"`
	Partition     string  `json:"partition"`
	State         string  `json:"state"`
	Reason        string  `json:"reason"`
	Detail        string  `json:"reason_detail"`
	ExitCode      *int32  `json:"exit_code"`
	Signal        int32   `json:"signal"`
	Nodes         string  `json:"nodes"`
	QueuedSeconds float64 `json:"queued_seconds"`
	RunSeconds    float64 `json:"run_seconds"`
	Comment       string  `json:"comment"`
}

// EventName returns an event's name in webhooks: end, fail, time_limit_50.
func EventName(e cluster.MailEvents) string { return strings.ToLower(e.String()) }

func eventOf(clusterID string, n *logv1.Notice) Event {
	e := Event{
		ID: ID(clusterID, n), Event: EventName(cluster.MailEvents(n.Event)), Time: time.UnixMicro(n.AtUs).UTC(), Text: Subject(n),
		Job: EventJob{
			ID: n.Job, ArrayID: n.ArrayJob, Attempt: n.Attempt, Name: n.Name, User: n.User, Partition: n.Partition, State: cluster.JobState(n.State).String(),
			Reason: n.Reason, Detail: n.Detail, ExitCode: n.ExitCode, Signal: n.Signal, Nodes: n.Nodes,
			QueuedSeconds: float64(n.QueuedUs) / 1e6, RunSeconds: float64(n.RanUs) / 1e6, Comment: n.Comment,
		},
	}
	if n.ArrayJob != 0 && !n.WholeArray {
		e.Job.ArrayTask = &n.ArrayTask
	}
	if n.Text != "" && !n.WholeArray { // which is in the subject
		e.Text += ": " + n.Text
	}
	return e
}

// Poster calls webhooks. Create it with NewPoster.
type Poster struct {
	Cluster, ClusterID string
	client             *http.Client
}

// NewPoster returns a poster that calls nothing that guard forbids, follows no
// redirect, uses no proxy and limits a request to 10 s.
func NewPoster(name, id string, guard *Guard) *Poster {
	dialer := &net.Dialer{Timeout: postTimeout, Control: guard.control}
	return &Poster{Cluster: name, ClusterID: id, client: &http.Client{
		Timeout: postTimeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: postTimeout, ResponseHeaderTimeout: postTimeout,
			MaxIdleConns: 16, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: mostAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (p *Poster) Close() { p.client.CloseIdleConnections() }

// Sign returns what HeaderSignature holds.
func Sign(secret, body []byte, now time.Time) string {
	at := strconv.FormatInt(now.Unix(), 10)
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(at + "."))
	h.Write(body)
	return "t=" + at + ",v1=" + hex.EncodeToString(h.Sum(nil))
}

// Post sends notices, at most 100, to a webhook. They arrived if the answer is 2xx;
// 410 Gone is final.
func (p *Poster) Post(ctx context.Context, h *logv1.Webhook, ns []*logv1.Notice, now time.Time) error {
	load := Payload{Version: 1, Cluster: p.Cluster, Webhook: h.Id}
	for _, n := range ns {
		load.Events = append(load.Events, eventOf(p.ClusterID, n))
	}
	body, err := json.Marshal(&load)
	if err != nil {
		return fmt.Errorf("%w: %v", errForGood, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %v", errForGood, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "berth")
	req.Header.Set(HeaderWebhook, strconv.FormatUint(h.Id, 10))
	req.Header.Set(HeaderSignature, Sign(h.Secret, body, now))
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, mostAnswer)) // so that the connection may be used again
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return nil
	case resp.StatusCode == http.StatusGone:
		return fmt.Errorf("%w: answered %s", errForGood, plain(resp.Status))
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fmt.Errorf("answered %s; redirects are not followed", plain(resp.Status))
	}
	return fmt.Errorf("answered %s", plain(resp.Status))
}
