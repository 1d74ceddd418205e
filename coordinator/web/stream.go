package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/web/session"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	// aliveEvery is the interval of keep-alives on a stream.
	aliveEvery = 15 * time.Second
	// takeIn is how long a browser may take to receive what was sent to it.
	takeIn = 30 * time.Second
	// Lines of a log from before the page was opened.
	tailLines = 500
)

// streams counts live streams.
type streams struct {
	most, perUser int

	mu   sync.Mutex
	all  int
	open map[cluster.UID]int
}

func newStreams(most, perUser int) *streams {
	return &streams{most: most, perUser: perUser, open: map[cluster.UID]int{}}
}

// enter counts a stream of a user until leave is called.
func (c *streams) enter(uid cluster.UID) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open[uid] >= c.perUser:
		return nil, cluster.Errorf(cluster.CodeExhausted, "you have %d live pages and logs open here, which is the limit; close some of them", c.perUser)
	case c.all >= c.most:
		return nil, cluster.Errorf(cluster.CodeExhausted, "%d live pages and logs are open at this coordinator, which is the limit; this one continues without", c.most)
	}
	c.open[uid]++
	c.all++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		if c.open[uid]--; c.open[uid] == 0 {
			delete(c.open, uid)
		}
	}), nil
}

// event is one message to a browser. Without data it is only a keep-alive.
type event struct {
	id   string // where to continue after a break
	name string // "" is "message"
	data proto.Message
	text string // instead of data, in one line
}

// watch streams changes of jobs. A browser that lost the stream continues where it
// was.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, sess *session.Session) {
	from, err := position(r)
	if err != nil {
		fail(w, err)
		return
	}
	s.stream(w, r, sess, func(ctx context.Context, emit func(event) bool) error {
		conn, err := s.within.of(sess.User)
		if err != nil {
			return err
		}
		in, err := apirpc.NewJobServiceClient(conn).WatchJobs(ctx, &apiv1.WatchJobsRequest{FromIndex: from, Brief: true})
		for err == nil {
			var resp *apiv1.WatchJobsResponse
			if resp, err = in.Recv(); err == nil && !emit(event{id: strconv.FormatUint(resp.Index, 10), data: resp}) {
				return nil
			}
		}
		return err
	})
}

// follow streams what a job writes, from the end of what it wrote before.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, sess *session.Session) {
	job, err := strconv.ParseUint(r.FormValue("job"), 10, 64)
	from, err2 := position(r)
	if err = errors.Join(err, err2); err != nil {
		fail(w, cluster.Errorf(cluster.CodeInvalid, "job: %v", err))
		return
	}
	logs := &apiv1.AttachLogs{Stderr: r.FormValue("stderr") != "", Follow: true, Offset: int64(from)} // #nosec G115 -- bounded by position
	if from == 0 {
		logs.TailLines = proto.Int64(tailLines)
	}
	open := &apiv1.AttachOpen{Job: job, What: &apiv1.AttachOpen_Logs{Logs: logs}}
	s.stream(w, r, sess, func(ctx context.Context, emit func(event) bool) error {
		conn, err := s.within.of(sess.User)
		if err != nil {
			return err
		}
		in, err := apirpc.NewAttachServiceClient(conn).Attach(ctx)
		if err == nil {
			err = in.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Open{Open: open}})
		}
		for err == nil || errors.Is(err, io.EOF) { // EOF of Send: Recv says why
			var resp *apiv1.AttachResponse
			if resp, err = in.Recv(); err != nil {
				break
			}
			ev := event{data: resp}
			if c := resp.GetLog(); c != nil {
				ev.id = strconv.FormatInt(c.Offset+int64(len(c.Data)), 10)
			}
			if resp.Kind != nil && !emit(ev) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
}

// position returns where a browser asks a stream to start.
func position(r *http.Request) (uint64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.FormValue("from")
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, cluster.Errorf(cluster.CodeInvalid, "from: %.40q is not a position", text)
	}
	return n, nil
}

// stream sends a browser what from emits, until either ends, or the session does. A
// browser that does not receive blocks from, and is dropped after a while.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, sess *session.Session, from func(context.Context, func(event) bool) error) {
	leave, err := s.streams.enter(sess.User.UID)
	if err != nil {
		fail(w, err)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out, ended := make(chan event), make(chan error, 1)
	go func() {
		ended <- from(ctx, func(ev event) bool {
			select {
			case out <- ev:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	b := &browser{w: w, ctl: http.NewResponseController(w)}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for ok := b.write("retry: 2000\n\n"); ok; {
		select {
		case ev := <-out:
			ok = b.event(ev)
		case <-alive.C:
			ok = b.write(": here\n\n")
		case <-sess.Done:
			ok = b.event(event{name: "over", text: "the session has ended"}) && false
		case err := <-ended:
			ended <- nil
			b.last(err)
			ok = false
		}
	}
	cancel()
	<-ended
}

// browser is the other end of a stream.
type browser struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

func (b *browser) write(text string) bool {
	now := time.Now()
	_ = b.ctl.SetReadDeadline(now.Add(2 * takeIn)) // of the request, which is already read
	_ = b.ctl.SetWriteDeadline(now.Add(takeIn))
	if _, err := io.WriteString(b.w, text); err != nil {
		return false
	}
	return b.ctl.Flush() == nil
}

func (b *browser) event(ev event) bool {
	data := []byte(ev.text)
	if ev.data != nil {
		var err error
		if data, err = protojson.Marshal(ev.data); err != nil {
			return false
		}
	}
	head := ""
	if ev.id != "" {
		head = "id: " + ev.id + "\n"
	}
	if ev.name != "" {
		head += "event: " + ev.name + "\n"
	}
	return b.write(fmt.Sprintf("%sdata: %s\n\n", head, data))
}

// last says why a stream ends: "again" asks to restart, "lost" says what is wrong,
// "end" that no more comes.
func (b *browser) last(err error) {
	ev := event{name: "end"}
	if err != nil {
		e, ok := errors.AsType[*cluster.Error](err)
		if !ok {
			e = apiconv.FromStatus(err)
		}
		ev = event{name: "lost", text: strconv.Quote(e.Msg)}
		if e.Code == cluster.CodeOutOfRange {
			ev.name = "again"
		}
	}
	b.event(ev)
}
