package jobs

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// maxChanged bounds how many fields of a service one request may change.
const maxChanged = 100

// unchanging are fields that no change of a service may name: they follow from
// others, or would make it another service.
var unchanging = []string{"array", "change", "service", "service.name", "service.least", "study"}

// revised returns the full description of a new revision for a request that names
// only what changes, and the differences in words. A description without change is
// returned as it is. Its original description counts as if it had been sent again.
func (c *Jobs) revised(ctx context.Context, who authorize.Caller, js *apiv1.JobSpec) (*apiv1.JobSpec, []string, error) {
	if js.GetChange() == nil {
		return js, nil, nil
	}
	name, fields := js.GetService().GetName(), js.GetChange().GetFields()
	base, ok := c.newestOf(who.UID, name)
	switch {
	case !ok:
		return nil, nil, cluster.Errorf(cluster.CodeNotFound, "service %s: you have none of that name; berth service create starts one", cluster.QuoteShort(name))
	case len(fields) > maxChanged:
		return nil, nil, cluster.Errorf(cluster.CodeInvalid, "change.fields: %d are named, at most %d are allowed", len(fields), maxChanged)
	}
	if _, bulk := base.Spec.Weight(); bulk > 0 {
		if err := c.calls.Brings(ctx, bulk); err != nil {
			return nil, nil, err
		}
	}
	was := described(base.Spec)
	now := proto.CloneOf(was)
	for _, f := range fields {
		if slices.Contains(unchanging, f) || !overlay(now.ProtoReflect(), js.ProtoReflect(), f) {
			return nil, nil, cluster.Errorf(cluster.CodeInvalid, "change.fields: %s cannot be changed for a service; want fields of a job's description such as gpu_mem_mib or service.drain", cluster.QuoteShort(f))
		}
	}
	settle(now, base.Wanted, fields)
	var changes []string
	for _, f := range fields {
		if text := differs(was.ProtoReflect(), now.ProtoReflect(), f); text != "" {
			changes = append(changes, text)
		}
	}
	return now, changes, nil
}

// newestOf returns the revision of a user's service that replaces all others.
func (c *Jobs) newestOf(owner cluster.UID, name string) (out fsm.Revision, ok bool) {
	return newest(c.fsm.ServicesWhere(func(uid cluster.UID, _ string, s *cluster.Spec) bool {
		return uid == owner && s.Service.Name == name
	}))
}

// newest returns the last of several revisions, if there is one.
func newest(all []fsm.Revision) (out fsm.Revision, ok bool) {
	if len(all) == 0 {
		return out, false
	}
	return all[len(all)-1], true
}

// described returns a spec as a user would describe it, with what is stored outside
// of it.
func described(s *cluster.Spec) *apiv1.JobSpec {
	all := *s
	all.Env, all.Script = s.Large()
	all.Bulk = nil
	return apiconv.SpecToAPI(&all)
}

// overlay copies one field, by a path such as where.nodes; false if there is none.
func overlay(to, from protoreflect.Message, path string) bool {
	head, rest, nested := strings.Cut(path, ".")
	fd := to.Descriptor().Fields().ByName(protoreflect.Name(head))
	switch {
	case fd == nil || nested && (fd.Message() == nil || fd.IsList() || fd.IsMap()):
		return false
	case nested:
		return overlay(to.Mutable(fd).Message(), from.Get(fd).Message(), rest)
	case from.Has(fd):
		to.Set(fd, from.Get(fd))
	default:
		to.Clear(fd)
	}
	return true
}

// settle updates the fields that follow from others: the service keeps its current
// number of replicas unless another is requested, and its array has room for the
// most.
func settle(js *apiv1.JobSpec, now int, fields []string) {
	s := js.Service
	if slices.Contains(fields, "service.replicas") {
		s.Least = uint32(max(0, apiconv.ServiceFromAPI(s).LeastOf(int(min(s.Replicas, service.MaxReplicas)))))
	} else {
		s.Replicas = min(max(uint32(max(0, now)), s.Least), s.Most)
	}
	if most := min(s.Most, service.MaxReplicas); most > 0 { // otherwise it is refused in words
		js.Array = fmt.Sprintf("0-%d", most-1)
		if n := min(s.Replicas, most); n > 0 {
			js.Array += fmt.Sprintf("%%%d", n)
		}
	}
	if s.Least > 0 && !slices.Contains(fields, "service.idle_after") {
		s.IdleAfter = nil
	}
	if on := apiconv.ServiceFromAPI(s).Metric(); on != "" {
		js.Study = &apiv1.Study{Metric: on}
	}
	if js.Image != "" && js.GetContainer().GetNetwork() == "" {
		if js.Container == nil {
			js.Container = &apiv1.Container{}
		}
		js.Container.Network = string(cluster.NetHost)
	}
}

// differs says how a field differs between two descriptions, "" if it does not.
func differs(was, now protoreflect.Message, path string) string {
	name := path
	for {
		head, rest, nested := strings.Cut(path, ".")
		fd := now.Descriptor().Fields().ByName(protoreflect.Name(head))
		a, b := was.Get(fd), now.Get(fd)
		if nested {
			was, now, path = a.Message(), b.Message(), rest
			continue
		}
		if a.Equal(b) {
			return ""
		}
		name = strings.TrimPrefix(name, "service.")
		name, unit := strings.NewReplacer("_", "-", ".", " ").Replace(name), ""
		if cut, ok := strings.CutSuffix(name, "-mib"); ok {
			name, unit = cut, " MiB"
		}
		switch {
		case head == "env" || head == "features" || head == "script":
			return "another " + map[string]string{"env": "environment", "features": "model", "script": "script"}[head]
		case fd.IsList() && fd.Kind() != protoreflect.BytesKind:
			return "other " + name
		}
		if fd.Kind() == protoreflect.Int64Kind && unit != "" && a.Int() > 0 && b.Int() > 0 {
			x, y := cluster.MemTexts(a.Int(), b.Int())
			return fmt.Sprintf("%s %s → %s", name, x, y)
		}
		return fmt.Sprintf("%s %s → %s", name, valueText(fd, a, unit), valueText(fd, b, unit))
	}
}

// valueText returns a value in a few words.
func valueText(fd protoreflect.FieldDescriptor, v protoreflect.Value, unit string) string {
	const most = 60
	text := ""
	switch {
	case fd.IsList():
		var parts [][]byte
		for i := range v.List().Len() {
			parts = append(parts, v.List().Get(i).Bytes())
		}
		text = string(bytes.Join(parts, []byte(" ")))
	case fd.Kind() == protoreflect.BytesKind:
		text = string(v.Bytes())
	case fd.Message() != nil:
		if d, ok := v.Message().Interface().(*durationpb.Duration); ok && v.Message().IsValid() {
			text = cluster.TimeText(d.AsDuration())
		} else if v.Message().IsValid() {
			text = fmt.Sprint(v.Message().Interface())
		}
	default:
		if text = v.String(); text != "0" && text != "" {
			text += unit
		}
	}
	if text == "" || text == "0" || text == "false" {
		return "none"
	}
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}

const (
	// minProxy and maxProxy bound the name of a proxy, in bytes.
	minProxy, maxProxy = 16, 64
	// mostAtOnce bounds what a proxy may report as in flight.
	mostAtOnce = 1 << 24
)

// ReportRequests records what a proxy measured of a service of the caller's.
func (s *jobServer) ReportRequests(ctx context.Context, req *apiv1.ReportRequestsRequest) (*apiv1.ReportRequestsResponse, error) {
	who := authorize.CallerOf(ctx)
	switch n := len(req.Proxy); {
	case n < minProxy || n > maxProxy:
		return nil, cluster.Errorf(cluster.CodeInvalid, "proxy: a name of %d bytes, want %d to %d", n, minProxy, maxProxy)
	case len(req.Latency) > len(service.Latencies{}):
		return nil, cluster.Errorf(cluster.CodeInvalid, "latency: %d numbers, at most %d are allowed", len(req.Latency), len(service.Latencies{}))
	case req.InFlight > mostAtOnce || req.Waiting > mostAtOnce:
		return nil, cluster.Errorf(cluster.CodeInvalid, "in_flight: %d and %d waiting, at most %d are allowed", req.InFlight, req.Waiting, mostAtOnce)
	}
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	base, ok := s.c.serviceOf(cmp.Or(req.User, strconv.FormatUint(uint64(who.UID), 10)), req.Service)
	if !ok {
		return nil, cluster.Errorf(cluster.CodeNotFound, "service %s: none of that name is running", cluster.QuoteShort(req.Service))
	}
	if err := s.c.auth.May(who, authorize.Cancel, &base.Owner); err != nil {
		return nil, err
	}
	c := service.Counted{Requests: req.Requests, Held: req.Held, InFlight: int(req.InFlight), Waiting: int(req.Waiting)}
	copy(c.Latency[:], req.Latency)
	if !s.c.lead.Heard(&base, strconv.FormatUint(uint64(who.UID), 10)+" "+req.Proxy, &c) {
		return nil, cluster.Errorf(cluster.CodeExhausted, "service %s: too many proxies report already", cluster.QuoteShort(req.Service))
	}
	return &apiv1.ReportRequestsResponse{}, nil
}

// serviceOf returns the newest revision of a service, by its owner's name or
// number.
func (c *Jobs) serviceOf(owner, name string) (out fsm.Revision, ok bool) {
	return newest(c.fsm.ServicesWhere(func(uid cluster.UID, user string, s *cluster.Spec) bool {
		return s.Service.Name == name && (user == owner || strconv.FormatUint(uint64(uid), 10) == owner)
	}))
}
