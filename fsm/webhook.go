package fsm

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	minSecret = 16
	maxSecret = 128
	maxURL    = 2048
)

func (s *State) hook(id uint64) (int, bool) {
	hs := s.out.hooks
	i := sort.Search(len(hs), func(i int) bool { return hs[i].Id >= id })
	return i, i < len(hs) && hs[i].Id == id
}

func (s *State) hookRecord(key string) proto.Message {
	for _, h := range s.out.hooks {
		if hookKey(h.Id) == key {
			return h
		}
	}
	return nil
}

func hookKey(id uint64) string { return fmt.Sprint(id) }

func cloneHook(h *logv1.Webhook) *logv1.Webhook { return proto.CloneOf(h) }

// setHooks replaces the webhooks, of which one changed.
func (s *State) setHooks(hs []*logv1.Webhook, changed uint64) {
	s.out.hooks = hs
	s.hash.rest.touch(entity{kindHook, hookKey(changed)})
}

// addWebhook adds a webhook under the next id. Whether its address may be
// called is the leader's to check.
func (s *State) addWebhook(c *logv1.AddWebhook) Result {
	w := c.Webhook
	mine := 0
	for _, h := range s.out.hooks {
		if h.Uid == w.GetUid() {
			mine++
		}
	}
	switch {
	case w.GetUrl() == "" || len(w.Url) > maxURL:
		return refuse(cluster.CodeInvalid, "url: %d bytes, must have 1 to %d", len(w.GetUrl()), maxURL)
	case len(w.Secret) < minSecret || len(w.Secret) > maxSecret:
		return refuse(cluster.CodeInvalid, "secret: %d bytes, must have %d to %d", len(w.Secret), minSecret, maxSecret)
	case w.Events == 0:
		return refuse(cluster.CodeInvalid, "events: there are none")
	case len(s.out.hooks) >= maxWebhooks:
		return refuse(cluster.CodeExhausted, "there are %d webhooks, at most %d are allowed", len(s.out.hooks), maxWebhooks)
	case !w.All && mine >= maxHooksOfUser:
		return refuse(cluster.CodeExhausted, "uid %d has %d webhooks, at most %d are allowed; remove one: berth webhook list", w.Uid, mine, maxHooksOfUser)
	}
	h := &logv1.Webhook{
		Id: s.out.told.nextWebhook + 1, Url: w.Url, Secret: w.Secret, Events: w.Events, User: w.User, Uid: w.Uid, All: w.All, CreatedUs: int64(s.now),
	}
	s.out.told.nextWebhook = h.Id
	s.touchTelling()
	s.setHooks(append(slices.Clone(s.out.hooks), h), h.Id)
	return Result{Webhook: h.Id}
}

// removeWebhook forgets a webhook and what waits for it.
func (s *State) removeWebhook(c *logv1.RemoveWebhook) Result {
	i, ok := s.hook(c.Id)
	if !ok {
		return refuse(cluster.CodeNotFound, "webhook %d is not known; see: berth webhook list", c.Id)
	}
	s.setHooks(slices.Concat(s.out.hooks[:i], s.out.hooks[i+1:]), c.Id)
	s.drop(func(n *logv1.Notice) bool { return n.Target == c.Id })
	return Result{}
}

// Notices returns notices that wait to be sent, oldest first, at most limit,
// after the one with seq after. They are not to be changed.
func (f *FSM) Notices(after uint64, limit int) []*logv1.Notice {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := f.st.out.notices
	i := sort.Search(len(all), func(i int) bool { return all[i].Seq > after })
	return slices.Clone(all[i:min(len(all), i+limit)])
}

// Webhooks returns the webhooks, by id, and what was counted of all notices.
// They are not to be changed, and hold their secrets.
func (f *FSM) Webhooks() ([]*logv1.Webhook, *logv1.Telling) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.st.out.hooks, f.st.out.told.record()
}

// DeadNotices returns the newest notices that were given up, oldest first.
func (f *FSM) DeadNotices() []*logv1.DeadNotice {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.st.out.dead
}

// WaitNotices returns when one waits with a seq beyond after, or with ctx's
// error.
func (f *FSM) WaitNotices(ctx context.Context, after uint64) error {
	for {
		f.mu.RLock()
		n, index := len(f.st.out.notices), f.st.index
		found := n > 0 && f.st.out.notices[n-1].Seq > after
		f.mu.RUnlock()
		if found {
			return nil
		}
		if err := f.WaitChange(ctx, index); err != nil {
			return err
		}
	}
}

func (s *State) loadTelling(m *logv1.Telling) {
	s.out.told = telling{m.NextSeq, m.NextWebhook, m.MailsSent, m.MailsDead, m.Lost}
	s.touchTelling()
}

func (s *State) loadNotice(n *logv1.Notice) error {
	if k := len(s.out.notices); k > 0 && s.out.notices[k-1].Seq >= n.Seq {
		return fmt.Errorf("notice %d is out of order", n.Seq)
	}
	s.putNotice(proto.CloneOf(n))
	return nil
}

func (s *State) loadWebhook(h *logv1.Webhook) error {
	if k := len(s.out.hooks); k > 0 && s.out.hooks[k-1].Id >= h.Id {
		return fmt.Errorf("webhook %d is out of order", h.Id)
	}
	s.setHooks(append(s.out.hooks, cloneHook(h)), h.Id)
	return nil
}

func (s *State) loadDead(d *logv1.DeadNotice) error {
	if d.Notice == nil {
		return fmt.Errorf("a notice that was given up is missing")
	}
	s.out.dead = append(s.out.dead, proto.CloneOf(d))
	s.hash.dead.touch(d.Notice.Seq)
	return nil
}

// eachTelling puts the records of what is to be told.
func (s *State) eachTelling(w *putter) {
	if t := s.out.told; t != (telling{}) {
		w.send(&logv1.Record{Kind: &logv1.Record_Telling{Telling: t.record()}})
	}
	for _, h := range s.out.hooks {
		w.send(&logv1.Record{Kind: &logv1.Record_Webhook{Webhook: h}})
	}
	for _, n := range s.out.notices {
		w.send(&logv1.Record{Kind: &logv1.Record_Notice{Notice: n}})
	}
	for _, d := range s.out.dead {
		w.send(&logv1.Record{Kind: &logv1.Record_DeadNotice{DeadNotice: d}})
	}
}
