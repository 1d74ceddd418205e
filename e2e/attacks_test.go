package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	berrors "github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// malloryEnv makes this program Mallory.
const malloryEnv = "BERTH_TEST_MALLORY"

// mallory is a user who wants the cluster to end, and knows where it listens.
type mallory struct {
	Sockets, Ports []string
	Gate           string
	Only           string  // what the names of the attacks begin with
	Burn           float64 // no attack: compute on so much of a core
}

// triedAll is what Mallory says when each attack was made once.
const triedAll = "tried all"

// attackCount is how often an attack was tried.
type attackCount struct {
	Done, Refused int64
	Why           string // the last refusal
}

func retriable(err error) bool {
	code := apiconv.FromStatus(err).Code
	return code == berrors.CodeUnavailable || code == berrors.CodeUnknown
}

// runMallory attacks until its standard input ends, says when everything was tried
// once, and prints what it did.
func runMallory(plan string) int {
	var m mallory
	if err := json.Unmarshal([]byte(plan), &m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	if m.Burn > 0 {
		go burn(m.Burn)
		m.Only = "nothing"
	}
	counts := map[string]*attackCount{} // each is its attack's until that ends
	var wg, first sync.WaitGroup
	for name, attack := range m.attacks() {
		if !strings.HasPrefix(name, m.Only) {
			continue
		}
		n := &attackCount{}
		counts[name] = n
		first.Add(1)
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := attack(ctx, i); err == nil {
					n.Done++
				} else if ctx.Err() == nil {
					n.Refused, n.Why = n.Refused+1, fmt.Sprintf("%.160s", err)
				}
				if i == 0 {
					first.Done()
				}
				time.Sleep(2 * time.Millisecond) // Mallory's own work must not take the cores
			}
		})
	}
	go func() {
		first.Wait()
		fmt.Println(triedAll)
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	wg.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(counts); err != nil {
		return 1
	}
	return 0
}

// burn computes for a part of the time, without end.
func burn(part float64) {
	const turn = 10 * time.Millisecond
	for {
		for began := time.Now(); time.Since(began).Seconds() < part*turn.Seconds(); {
		}
		time.Sleep(time.Duration((1 - min(part, 1)) * float64(turn)))
	}
}

// attacks are the ways that are tried, each again and again beside the others.
func (m *mallory) attacks() map[string]func(ctx context.Context, i int) error {
	socket := func(i int) apirpc.JobServiceClient {
		return apirpc.NewJobServiceClient(m.local(m.Sockets[i%len(m.Sockets)]))
	}
	jobs := []apirpc.JobServiceClient{socket(0), socket(1), socket(2)}
	submit := func(ctx context.Context, i int, specs ...*apiv1.JobSpec) ([]uint64, error) {
		r, err := jobs[i%3].SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: specs})
		return r.GetIds(), err
	}
	pair, packed := &pairOfTasks{}, incompressible(400<<10)
	return map[string]func(context.Context, int) error{
		"stale dependency": func(ctx context.Context, i int) error {
			a, err := submit(ctx, i, held("a"))
			if err != nil {
				return err
			}
			b := held("b")
			b.Depends = []*apiv1.Dependency{{Kind: "afterok", Job: a[0]}}
			ids, err := submit(ctx, i, b)
			if err != nil {
				return err
			}
			_, err = jobs[i%3].UpdateJob(ctx, &apiv1.UpdateJobRequest{Id: ids[0], SetDepends: true})
			return err
		},
		"cancel tasks without end": func(ctx context.Context, i int) error {
			id, err := pair.get(func() (uint64, error) {
				two := held("pair")
				two.Array = "0-1"
				ids, err := submit(ctx, i, two)
				if err != nil {
					return 0, err
				}
				return ids[0], nil
			})
			if err != nil {
				return err
			}
			req := &apiv1.CancelJobsRequest{RequestId: rand.Text()}
			for range 100 {
				req.Tasks = append(req.Tasks, &apiv1.ArrayTasks{Array: id, Tasks: "2-4194303"})
			}
			_, err = jobs[i%3].CancelJobs(ctx, req)
			return err
		},
		"expanding exclude": func(ctx context.Context, i int) error {
			s := held("wide")
			s.Where = &apiv1.Where{Exclude: "x[0-16383]"}
			_, err := submit(ctx, i, s)
			return err
		},
		"large jobs": func(ctx context.Context, i int) error {
			s := held("large")
			for k := range 200 {
				s.Env = append(s.Env, []byte(fmt.Sprintf("A%d=%d%s", k, i, strings.Repeat("x", 4000))))
			}
			s.Script = packed
			_, err := submit(ctx, i, s)
			return err
		},
		"overlapping arrays": func(ctx context.Context, i int) error {
			s := held("overlap")
			s.Array = strings.TrimSuffix(strings.Repeat("0-99999,", (256<<10)/8), ",")
			_, err := submit(ctx, i, s)
			return err
		},
		"lists": flood(32, func(ctx context.Context, i int) error {
			_, err := jobs[i%3].ListJobs(ctx, &apiv1.ListJobsRequest{})
			return err
		}),
		"predict": flood(32, func(ctx context.Context, i int) error {
			_, err := jobs[i%3].Predict(ctx, &apiv1.PredictRequest{Spec: held("p")})
			return err
		}),
		"reports": flood(32, func(ctx context.Context, i int) error {
			_, err := apirpc.NewHistoryServiceClient(m.local(m.Sockets[i%3])).GetReport(ctx, &apiv1.GetReportRequest{By: "user"})
			return err
		}),
		"watches": func(ctx context.Context, i int) error {
			s, err := jobs[i%3].WatchJobs(ctx, &apiv1.WatchJobsRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err // and it stays open
		},
		"requests that do not end":  m.unfinished(m.Sockets[0], apirpc.JobService_SubmitJobs_FullMethodName, insecure.NewCredentials()),
		"the gate's socket":         m.unfinished(m.Gate, apirpc.JobService_SubmitJobs_FullMethodName, insecure.NewCredentials()),
		"connections to the socket": idle("unix", m.Sockets),
		"connections to the gate":   idle("unix", []string{m.Gate}),
		"no certificate, silent":    idle("tcp", m.Ports),
		"no certificate, joins":     m.joins(),
		"no certificate, large": m.unfinished(m.Ports[0], noderpc.NodeService_Join_FullMethodName,
			credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})),
	}
}

func held(name string) *apiv1.JobSpec {
	return &apiv1.JobSpec{Name: name, Command: [][]byte{[]byte("true")}, Dir: []byte("/"), Hold: true}
}

// pairOfTasks is an array of two tasks, made once.
type pairOfTasks struct {
	mu sync.Mutex
	id uint64
}

func (p *pairOfTasks) get(makeIt func() (uint64, error)) (id uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == 0 {
		p.id, err = makeIt()
	}
	return p.id, err
}

// flood does the same many times at once.
func flood(n int, do func(ctx context.Context, i int) error) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		errs := make(chan error, n)
		for k := range n {
			go func() { errs <- do(ctx, i+k) }()
		}
		var last error
		for range n {
			if err := <-errs; err != nil {
				last = err
			}
		}
		return last
	}
}

var conns struct {
	sync.Mutex
	of map[string]*grpc.ClientConn
}

func (m *mallory) local(path string) *grpc.ClientConn {
	conns.Lock()
	defer conns.Unlock()
	if cc := conns.of[path]; cc != nil {
		return cc
	}
	cc, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	if conns.of == nil {
		conns.of = map[string]*grpc.ClientConn{}
	}
	conns.of[path] = cc
	return cc
}

// bytesAlone sends bytes as they are.
type bytesAlone struct{}

// Marshal implements encoding.Codec.
func (bytesAlone) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal implements encoding.Codec.
func (bytesAlone) Unmarshal([]byte, any) error { return nil }

// Name implements encoding.Codec.
func (bytesAlone) Name() string { return "proto" }

var fourMiB = make([]byte, 4<<20-100)

// unfinished opens connections, and on each requests of 4 MiB that say nothing
// after them, as many as are taken; they stay open.
func (m *mallory) unfinished(addr, method string, creds credentials.TransportCredentials) func(context.Context, int) error {
	target := "passthrough:///" + addr
	if strings.HasPrefix(addr, "/") {
		target = "unix:" + addr
	}
	desc := grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	var cc *grpc.ClientConn
	return func(ctx context.Context, i int) (err error) {
		if i%50 == 0 {
			if cc, err = grpc.NewClient(target, grpc.WithTransportCredentials(creds)); err != nil {
				return err
			}
		}
		begin, cancel := context.WithTimeout(ctx, time.Second)
		s, err := cc.NewStream(begin, &desc, method, grpc.ForceCodec(bytesAlone{}))
		if err != nil {
			cancel()
			return err
		}
		go func() { defer cancel(); _ = s.SendMsg(fourMiB); _ = s.RecvMsg(nil) }()
		return nil
	}
}

// idle opens connections that say nothing, and keeps a thousand.
func idle(network string, addrs []string) func(context.Context, int) error {
	kept := make([]net.Conn, 1000)
	return func(ctx context.Context, i int) error {
		conn, err := new(net.Dialer).DialContext(ctx, network, addrs[i%len(addrs)])
		if err != nil {
			return err
		}
		if network == "tcp" {
			tc := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}})
			if err := tc.HandshakeContext(ctx); err != nil {
				conn.Close()
				return err
			}
			conn = tc
		}
		if old := kept[i%len(kept)]; old != nil {
			old.Close()
		}
		kept[i%len(kept)] = conn
		return nil
	}
}

// joins tries tokens that are wrong.
func (m *mallory) joins() func(context.Context, int) error {
	creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	return func(ctx context.Context, i int) error {
		cc, err := grpc.NewClient("passthrough:///"+m.Ports[i%len(m.Ports)], grpc.WithTransportCredentials(creds))
		if err != nil {
			return err
		}
		defer cc.Close()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = noderpc.NewNodeServiceClient(cc).Join(ctx, &nodev1.JoinRequest{Node: "evil", TokenSecret: rand.Text() + rand.Text(), Csr: []byte("no")})
		if status.Code(err) == codes.OK {
			fmt.Fprintln(os.Stderr, "a wrong token was taken")
		}
		return err
	}
}

// incompressible is a packed script of n bytes of comment.
func incompressible(n int) []byte {
	text := make([]byte, n)
	_, _ = rand.Read(text) // it never fails
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	fmt.Fprintf(w, "#!/bin/sh\n# %x\n", text[:n/2])
	_ = w.Close() // into memory
	return b.Bytes()
}
