package servicecmd_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// running are ann's service chat, which is being updated, and embed of bob's.
func running() []*apiv1.Job {
	job := func(array uint64, task uint32, user, name, state, stands string) *apiv1.Job {
		j := &apiv1.Job{
			Id: array + uint64(task), ArrayJobId: array, ArrayTaskId: &task, Name: name, User: user, State: state, ArrayThrottle: 2,
			Replica: &apiv1.Replica{Service: name, PortName: "http", State: stands, Want: 2, Least: 1, Most: 4},
		}
		if stands != "" {
			j.Node, j.Replica.Address, j.Replica.Port, j.Replica.Since = "n1", "10.0.0.1", 20_000+uint32(j.Id), timestamppb.New(clitest.Now.Add(-90*time.Second))
		}
		return j
	}
	waits := job(20, 1, "ann", "chat", "PENDING", "")
	waits.Reason, waits.ReasonDetail = "BeginTime", "not before 2026-03-01T12:00:08Z"
	standby := job(20, 3, "ann", "chat", "PENDING", "")
	standby.ArrayTasks, standby.ArrayCount, standby.Reason = "2-3", 2, string(cluster.ReasonStandby)
	sick := job(10, 1, "ann", "chat", "RUNNING", "unhealthy")
	sick.Replica.Why = "GET /healthz: 503 Service Unavailable"
	held := job(40, 3, "ann", "held", "PENDING", "")
	held.ArrayTasks, held.ArrayCount, held.Reason, held.ReasonDetail = "0-3", 4, string(cluster.ReasonHeldUser), "held by ann"
	embed := job(30, 0, "bob", "embed", "RUNNING", "ready")
	embed.Replica.ScaleOn, embed.Replica.Want = "gpu=70%", 1
	return []*apiv1.Job{
		job(10, 0, "ann", "chat", "RUNNING", "ready"), sick, job(10, 2, "ann", "chat", "CANCELLED", ""), job(20, 0, "ann", "chat", "RUNNING", "starting"), waits, standby, embed, held,
	}
}

// TestGolden: what the commands print.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"list": "list", "list-all": "list --all", "list-json": "list -o json", "list-name": "list -o name", "show": "show chat", "show-other": "show embed", "show-none": "show none", "show-held": "show held",
		"scale-updating": "scale chat 2", "scale": "scale embed 3", "scale-far": "scale embed 9", "delete": "delete chat", "endpoints": "endpoints chat",
		"endpoints-haproxy": "endpoints chat -o haproxy", "endpoints-nginx": "endpoints chat -o nginx", "endpoints-prometheus": "endpoints chat -o prometheus", "endpoints-json": "endpoints embed --user bob -o json", "endpoints-others": "endpoints embed -o nginx", "endpoints-none": "endpoints chat --user bob",
		"create-there": "create chat -- x", "update-none": "update none -- x", "logs-none": "logs chat --replica 7", "logs": "logs chat",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			f.Jobs = running()
			w.Serve("/a", f)
			golden.Check(t, name, w.Transcript(append([]string{"service"}, strings.Fields(args)...)...))
			if name == "list" && (!f.LastList.GetReplicas() || len(f.LastList.GetUsers()) != 1) {
				t.Errorf("it asked for %v", f.LastList)
			}
		})
	}
}

// TestEnding: a service that is deleted during a rollout is ending, not updating, while its
// replicas drain, and so is one of which one revision is left; with a replica that goes on it is not.
func TestEnding(t *testing.T) {
	t.Parallel()
	shows := func(jobs ...*apiv1.Job) string {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs = jobs
		w.Serve("/a", f)
		return w.Transcript("service", "show", "chat") + w.Transcript("service", "list")
	}
	all := running()
	old, fresh := all[0], all[3]
	old.CancelRequested, fresh.CancelRequested = true, true
	for _, jobs := range [][]*apiv1.Job{{old, fresh}, {fresh}} {
		if got := shows(jobs...); strings.Count(got, "ending") != 2 || strings.Contains(got, "updating") || strings.Contains(got, "Rollout") || strings.Contains(got, "replacing") {
			t.Errorf("%d jobs:\n%s", len(jobs), got)
		}
	}
	fresh.CancelRequested = false
	if got := shows(old, fresh); strings.Count(got, "updating") != 2 || strings.Contains(got, "ending") {
		t.Errorf("the new revision goes on:\n%s", got)
	}
}

// TestNamesake: a service of one's own is meant even where others have one of its
// name; among others' the numbers tell them apart. A process knows who it is by
// number, a job whose it is by name.
func TestNamesake(t *testing.T) {
	t.Parallel()
	jobs := running()
	for i, user := range []string{"bob", "cyd"} {
		j := proto.CloneOf(jobs[6])
		j.Id, j.ArrayJobId, j.User, j.Uid, j.Replica.Service = uint64(40+i), uint64(40+i), user, uint32(1002+i), "chat"
		jobs = append(jobs, j)
	}
	for _, j := range jobs {
		if j.GetUser() == "ann" {
			j.Uid = 1001
		}
	}
	for uid, want := range map[string]string{
		"1001": "User      ann", "1003": "User      cyd",
		"0": "none of the services called chat is yours, but ann, bob, cyd have one each; give --user to name whose",
	} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs, f.Admin = jobs, true
		w.Serve("/a", f)
		w.Env.User = func() string { return uid }
		if got := w.Transcript("service", "show", "chat"); !strings.Contains(got, want) {
			t.Errorf("user %s sees, without %q:\n%s", uid, want, got)
		}
		if got := w.Transcript("service", "show", "chat", "--user", "bob"); !strings.Contains(got, "User      bob") {
			t.Errorf("user %s sees of bob's:\n%s", uid, got)
		}
		if got := w.Transcript("service", "delete", "chat", "--user", "cyd"); !strings.Contains(got, "service chat: ended") || len(f.Cancelled) != 1 || f.Cancelled[0] != 41 {
			t.Errorf("user %s ends cyd's: %v\n%s", uid, f.Cancelled, got)
		}
		if got := w.Transcript("service", "update", "chat", "--anew", "--", "x"); uid == "0" && !strings.Contains(got, `no service "chat" is running that is yours`) {
			t.Errorf("user %s updates one of others:\n%s", uid, got)
		}
	}
}

// TestForecastShown: what was forecast and why there are so many replicas, to whom it is
// told; while there is no forecast, why.
func TestForecastShown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*apiv1.Replica){
		"show-forecast": func(r *apiv1.Replica) {
			r.Forecast, r.ForecastAt, r.ForecastAhead = proto.Float64(36.44), timestamppb.New(clitest.Now.Add(2*time.Minute)), durationpb.New(135*time.Second)
			r.ForecastWant, r.ForecastTrend, r.WantWhy = 4, 1.013, "its load asks for 1, the forecast for 4"
		},
		"show-forecast-rate": func(r *apiv1.Replica) {
			r.Forecast, r.ForecastAt, r.ForecastAhead, r.ScaleOn, r.Slo = proto.Float64(0), timestamppb.New(clitest.Now), durationpb.New(15*time.Second), "", "p95=100ms"
		},
		"show-forecast-gpu":  func(r *apiv1.Replica) { r.Forecast, r.ScaleOn = proto.Float64(2.5), "gpu=70%" },
		"show-forecast-none": func(r *apiv1.Replica) { r.LoadKnown, r.WantWhy = durationpb.New(35*time.Minute), "its load asks for 1" },
		"show-forecast-off":  func(r *apiv1.Replica) { r.LoadKnown, r.NoForecast = nil, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			f.Jobs = running()[6:7]
			r := f.Jobs[0].Replica
			r.ScaleOn, r.Want, r.LoadKnown = "rps=10", 4, durationpb.New(31*time.Hour)
			change(r)
			w.Serve("/a", f)
			golden.Check(t, name, w.Transcript("service", "show", "embed")+w.Transcript("service", "show", "embed", "-o", "json"))
		})
	}
}

// TestCreate: flags become a service, and faults are named.
func TestCreate(t *testing.T) {
	t.Parallel()
	submit := func(args string) (*apiv1.JobSpec, string) {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		w.Serve("/a", f)
		if code := w.Run(append([]string{"service", "create"}, strings.Fields(args)...)...); code != 0 {
			return nil, w.Errs.String()
		}
		return f.Requests[0].GetJobs()[0], w.Out.String()
	}
	spec, said := submit("chat --gpus 0.25 --health /healthz -- serve --port {port}")
	if spec == nil {
		t.Fatal(said)
	}
	s := spec.GetService()
	if !strings.Contains(said, "Submitted service chat as job ") || spec.GetName() != "chat" || spec.GetArray() != "0-8%1" || spec.GetGpus() != 1 || spec.GetGpuUtilMilli() != 250 ||
		s.GetReplicas() != 1 || s.GetLeast() != 1 || s.GetMost() != 9 || s.GetPort() != "http" || s.GetHealth() != "/healthz" || s.GetEvery().AsDuration() != 2*time.Second ||
		s.GetFails() != 3 || s.GetStartWithin().AsDuration() != 10*time.Minute || s.GetDrain().AsDuration() != 10*time.Second || s.GetScaleOn() != "" {
		t.Errorf("%s submitted %v", said, spec)
	}
	spec, said = submit("embed --name other --replicas 2-6 --scale-on in_flight=4 --port grpc --health-every 5s --health-fails 2 --start-within 1h --drain 0 -- x")
	if s := spec.GetService(); spec.GetName() != "other" || s.GetName() != "embed" || spec.GetArray() != "0-5%2" || s.GetLeast() != 2 || s.GetMost() != 6 || s.GetScaleOn() != "in_flight" || s.GetScaleTarget() != 4 ||
		spec.GetStudy().GetMetric() != "in_flight" || s.GetPort() != "grpc" || s.GetEvery().AsDuration() != 5*time.Second || s.GetFails() != 2 || s.GetStartWithin().AsDuration() != time.Hour || s.GetDrain().AsDuration() != 0 {
		t.Errorf("%s submitted %v", said, spec)
	}
	if spec, said = submit("embed --gpus 1 --replicas 1-4 --scale-on gpu=70% -- x"); spec.GetService().GetScaleTarget() != 0.7 || spec.GetStudy() != nil {
		t.Errorf("%s submitted %v", said, spec)
	}
	for forecast, off := range map[string]bool{"": false, "--forecast on": false, "--forecast off": true} {
		if spec, said = submit("embed --replicas 1-4 --scale-on q=3 " + forecast + " -- x"); spec.GetService().GetNoForecast() != off {
			t.Errorf("%s: %s submitted %v", forecast, said, spec)
		}
	}
	for args, want := range map[string]string{
		"chat --forecast maybe -- x":                           `--forecast "maybe": want on or off`,
		"chat --replicas 1-4 --forecast on -- x":               "--forecast: is of a service that its load scales; add --scale-on or --slo",
		"chat --forecast off -- x":                             "--forecast: is of a service that its load scales",
		"chat --slo p99=1s --replicas 2-2 --forecast off -- x": "a range such as --replicas 1-8",
		"-- x":                                    "the name of the service is missing before --",
		"Chat -- x":                               `name "Chat": want`,
		"chat --replicas 0 -- x":                  "replicas: 0 is outside 1 to 256",
		"chat --replicas 4-2 -- x":                `--replicas "4-2": the range is upside down; the smaller number comes first: 2-4`,
		"chat --replicas many -- x":               "--replicas \"many\": want a number",
		"chat --replicas 300 -- x":                "replicas: 300 is outside 1 to 256",
		"chat --health healthz -- x":              `health "healthz": want a path`,
		"chat --health-every soon -- x":           "--health-every:",
		"chat --health-every 0 -- x":              "health every 0s: is outside",
		"chat --drain 2h -- x":                    "drain 2h0m0s: is outside",
		"chat --scale-on gpu=70% -- x":            "it is scaled on its use of GPUs and has none",
		"chat --scale-on gpu=70 -- x":             "--scale-on \"gpu=70\": want gpu=70%",
		"chat --scale-on q -- x":                  "--scale-on \"q\": want gpu=70%",
		"chat --replicas 2-2 --scale-on q=1 -- x": "scale_on: has nothing to choose from",
		"chat --array 1-3 -- x":                   "a service has replicas, not array tasks",
		"chat --nodes 2 -- x":                     "service and nodes: a replica is one process on one node",
		"chat --retry 2 -- x":                     "service and retry: replicas are always started again",
		"chat --gpus 1-4 -- x":                    "service and gpus:",
		"chat --deadline 1h -- x":                 "service and deadline:",
		"chat --gpus 0.255 -- x":                  `number of GPUs "0.255"`,
	} {
		if spec, said := submit(args); spec != nil || !strings.Contains(said, want) {
			t.Errorf("%s: %v\n%s want %s", args, spec, said, want)
		}
	}
}
