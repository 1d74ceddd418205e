package servicecmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// replica is one replica of a service that runs, or that waits for a reason
// other than there being enough.
type replica struct {
	Replica  uint32     `json:"replica"`
	Job      uint64     `json:"job"`
	Revision uint64     `json:"revision"`
	State    string     `json:"state"`
	Since    *time.Time `json:"since,omitempty"`
	Node     string     `json:"node,omitempty"`
	Address  string     `json:"address,omitempty"`
	Port     uint32     `json:"port,omitempty"`
	Why      string     `json:"why,omitempty"`

	running bool
}

// id names the replica as a task of its revision.
func (r *replica) id() string { return fmt.Sprintf("%d_%d", r.Revision, r.Replica) }

// revision is one array of a service.
type revision struct {
	ID    uint64 `json:"id"`
	Want  uint32 `json:"want"`
	Least uint32 `json:"least"`
	Most  uint32 `json:"most"`
	Alive int    `json:"alive"` // tasks that have not ended

	kept bool // one of them is not being cancelled
}

// shown is a service.
type shown struct {
	Name      string      `json:"name"`
	User      string      `json:"user"`
	PortName  string      `json:"port_name"`
	ScaleOn   string      `json:"scale_on,omitempty"`
	SLO       string      `json:"slo,omitempty"`
	Measured  *measured   `json:"measured,omitempty"`
	ColdStart *coldStart  `json:"cold_start,omitempty"`
	WantWhy   string      `json:"want_why,omitempty"`
	Forecast  *forecast   `json:"forecast,omitempty"`
	Want      uint32      `json:"want"`
	Ready     int         `json:"ready"`
	Updating  bool        `json:"updating"`
	Ending    bool        `json:"ending,omitempty"`
	Held      bool        `json:"held,omitempty"` // while no replica of the newest revision is ready
	Revisions []*revision `json:"revisions"`
	Replicas  []*replica  `json:"replicas"`
}

// measured is what proxies measured of a service's requests.
type measured struct {
	Rate     float64 `json:"rate"`
	InFlight uint32  `json:"in_flight"`
	// Percentile is that of the objective, over half a minute; Asked and Within
	// cover an hour.
	Percentile float64 `json:"percentile_seconds,omitempty"`
	Asked      float64 `json:"asked,omitempty"`
	Within     float64 `json:"within,omitempty"`
}

// coldStart is how long replicas took to accept requests, the median of Of.
type coldStart struct {
	Seconds float64 `json:"seconds"`
	Of      uint32  `json:"of"`
}

// figures copies what is measured of the service.
func (s *shown) figures(p *apiv1.Replica) {
	s.SLO = p.GetSlo()
	if p.Rate != nil || p.GetAsked() > 0 {
		s.Measured = &measured{p.GetRate(), p.GetInFlight(), p.GetMeasured().AsDuration().Seconds(), p.GetAsked(), p.GetWithin()}
	}
	if n := p.GetColdStarts(); n > 0 {
		s.ColdStart = &coldStart{p.GetColdStart().AsDuration().Seconds(), n}
	}
}

// objective describes the objective and how well it is met, in short or in full.
func (s *shown) objective(full bool) string {
	text, m := s.SLO, s.Measured
	if text == "" || m == nil {
		return text
	}
	if m.Percentile > 0 {
		text += ", now " + millis(m.Percentile)
	}
	if m.Asked > 0 {
		text += fmt.Sprintf(", %.1f%% within", 100*m.Within/m.Asked)
		if full {
			text += fmt.Sprintf(" of %.0f requests of the last hour", m.Asked)
		}
	}
	return text
}

func millis(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

func (s *shown) newest() *revision { return s.Revisions[len(s.Revisions)-1] }

// alive returns the revisions with tasks that have not ended.
func (s *shown) alive() (out []*revision) {
	for _, r := range s.Revisions {
		if r.Alive > 0 {
			out = append(out, r)
		}
	}
	return out
}

// pick returns the replica with a number or, for "", one that accepts
// requests, or any that runs.
func (s *shown) pick(number string) *replica {
	var best *replica
	for _, r := range s.Replicas {
		switch {
		case !r.running || number != "" && strconv.FormatUint(uint64(r.Replica), 10) != number:
		case best == nil, best.State != service.Ready.String() && r.State == service.Ready.String(), number != "" && r.Revision > best.Revision:
			best = r
		}
	}
	return best
}

// add takes a job of the service into account.
func (s *shown) add(j *apiv1.Job) {
	p := j.GetReplica()
	if n := len(s.Revisions); n == 0 || s.newest().ID != j.GetArrayJobId() {
		s.Revisions = append(s.Revisions, &revision{ID: j.GetArrayJobId()})
	}
	r := s.newest()
	r.Want, r.Least, r.Most = p.GetWant(), p.GetLeast(), p.GetMost()
	s.PortName, s.ScaleOn = p.GetPortName(), p.GetScaleOn()
	s.figures(p)
	s.WantWhy, s.Forecast = p.GetWantWhy(), forecastOf(p)
	if console.Terminal(j.GetState()) {
		return
	}
	r.Alive += max(1, int(j.GetArrayCount()))
	r.kept = r.kept || !j.GetCancelRequested()
	if j.GetReason() == string(cluster.ReasonStandby) && console.Waiting(j.GetState()) {
		return
	}
	row := &replica{
		Replica: j.GetArrayTaskId(), Job: j.GetId(), Revision: j.GetArrayJobId(), State: p.GetState(), Node: j.GetNode(), Address: p.GetAddress(), Port: p.GetPort(), Why: p.GetWhy(),
		running: p.GetState() != "",
	}
	if tasks, err := cluster.ParseTasks(j.GetArrayTasks()); err == nil && j.GetArrayCount() > 1 { // its id is that of the last, and the first is next
		row.Replica = tasks.Min()
		row.Job = row.Revision + uint64(row.Replica)
	}
	if t := p.GetSince(); t != nil {
		row.Since = new(t.AsTime())
	}
	if row.State == "" {
		row.State = strings.ToLower(j.GetState())
		row.Why = j.GetReason()
		if d := j.GetReasonDetail(); d != "" {
			row.Why += ": " + d
		}
	}
	s.Replicas = append(s.Replicas, row)
}

// settle counts once all jobs are known.
func (s *shown) settle() {
	for _, r := range s.Replicas {
		if r.State == service.Ready.String() {
			s.Ready++
		}
	}
	alive := s.alive()
	s.Ending = len(alive) > 0 && !slices.ContainsFunc(alive, func(r *revision) bool { return r.kept })
	s.Updating = len(alive) > 1 && !s.Ending
	s.Held = s.Updating && !slices.ContainsFunc(s.Replicas, func(r *replica) bool {
		return r.Revision == s.newest().ID && r.State == service.Ready.String()
	})
	if len(alive) > 0 {
		s.Want = alive[len(alive)-1].Want
	}
	slices.SortStableFunc(s.Replicas, func(a, b *replica) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Replica, b.Replica))
	})
}

// read returns the services of a user, "" for everyone, with a name, "" for any.
func read(ctx context.Context, c *client.Client, user, name string) ([]*shown, error) {
	req := &apiv1.ListJobsRequest{Brief: true, Replicas: true}
	if user != "" {
		req.Users = []string{user}
	}
	jobs, err := client.ListJobs(ctx, c, req)
	if err != nil {
		return nil, err
	}
	by := map[[2]string]*shown{}
	out := []*shown{}
	for _, j := range jobs { // by id: those of an array are adjacent
		key := [2]string{j.GetUser(), j.GetReplica().GetService()}
		if name != "" && key[1] != name {
			continue
		}
		if by[key] == nil {
			by[key] = &shown{Name: key[1], User: key[0], Replicas: []*replica{}}
			out = append(out, by[key])
		}
		by[key].add(j)
	}
	for _, s := range out {
		s.settle()
	}
	slices.SortStableFunc(out, func(a, b *shown) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.User, b.User)) })
	return out, nil
}

// addUser registers the flag for whose service is meant.
func addUser(cmd *cobra.Command, user *string) *cobra.Command {
	cmd.Flags().StringVar(user, "user", "", "the service of this `USER`; by default yours, or the only one of that name")
	return cmd
}

// one returns the service of a user with a name; without a user, the caller's own,
// or else the only one.
func one(ctx context.Context, e *console.Env, c *client.Client, user, name string) (*shown, error) {
	var all []*shown
	whose := []string{e.User(), ""}
	if user != "" {
		whose = []string{user}
	}
	for _, u := range whose {
		var err error
		if all, err = read(ctx, c, u, name); err != nil {
			return nil, err
		}
		if len(all) == 1 {
			return all[0], nil
		}
	}
	switch {
	case len(all) == 0 && user != "":
		return nil, noService(user, name)
	case len(all) == 0:
		return nil, cluster.Errorf(cluster.CodeNotFound, "no service %s is running; see: berth service list --all", console.ShortQuote(name))
	}
	owners := make([]string, len(all))
	for i, s := range all {
		owners[i] = s.User
	}
	return nil, cluster.Errorf(cluster.CodeConflict, "none of the services called %s is yours, but %s have one each; give --user to name whose", name, strings.Join(owners, ", "))
}

func noService(user, name string) error {
	return cluster.Errorf(cluster.CodeNotFound, "no service %s of %s is running; see: berth service list --all", console.ShortQuote(name), console.ShortQuote(user))
}

// of returns the named service of a user, "" for the caller. Where requests
// will be sent there it is never merely the only one: that would belong to
// whoever takes the name first.
func of(ctx context.Context, e *console.Env, c *client.Client, user, name string) (*shown, error) {
	all, err := read(ctx, c, cmp.Or(user, e.User()), name)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		return all[0], nil
	}
	if user != "" {
		return nil, noService(user, name)
	}
	s, err := one(ctx, e, c, "", name)
	if err != nil {
		return nil, err
	}
	return nil, cluster.Errorf(cluster.CodeConflict, "service %s is not yours but %s's; give --user %s to use it", name, s.User, s.User)
}

func newListCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	var all bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your services", Example: "  berth service list\n  berth service list --all -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			user := e.User()
			if all {
				user = ""
			}
			services, err := read(cmd.Context(), c, user, "")
			if err != nil {
				return err
			}
			return printServices(e, console.Format(output), services)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include those of other users")
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
	return cmd
}

func printServices(e *console.Env, f console.Format, all []*shown) error {
	if done, err := console.PrintList(e, f, all); done {
		return err
	}
	t := console.Table{Cols: []console.Column{{Head: "SERVICE", Shrink: true}, {Head: "USER", Shrink: true}, {Head: "REVISION", Right: true}, {Head: "READY", Right: true}, {Head: "SCALED ON"}, {Head: "OBJECTIVE", Shrink: true}, {Head: "STATE"}}}
	for _, s := range all {
		if f == console.FormatName {
			e.Printf("%s\n", s.Name)
			continue
		}
		t.Add(s.Name, s.User, strconv.FormatUint(s.newest().ID, 10), fmt.Sprintf("%d/%d", s.Ready, s.Want), console.OrDash(s.ScaleOn), console.OrDash(s.objective(false)), s.state())
	}
	if f != console.FormatName {
		t.Print(e)
	}
	return nil
}

// state describes the state of a service.
func (s *shown) state() string {
	switch {
	case s.Ending:
		return "ending"
	case s.Updating:
		return "updating"
	case s.Want == 0 && s.newest().Alive > 0:
		return "asleep"
	case s.newest().Alive < int(s.Want):
		return fmt.Sprintf("retries used up: %d of %d replicas can still run", s.newest().Alive, s.Want)
	case s.Ready >= int(s.Want):
		return "ready"
	case s.Ready == 0:
		return "not ready"
	}
	return "some ready"
}

func newShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	var user string
	return addUser(console.Formatted(&cobra.Command{
		Use: "show NAME", Short: "Show a service and its replicas", Example: "  berth service show chat\n  berth service show chat --user ann", Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, f console.Format, args []string) error {
		s, err := one(ctx, e, c, user, args[0])
		if err != nil {
			return err
		}
		return s.print(e, f)
	}, console.FormatTable, console.FormatJSON, console.FormatYAML), &user)
}

func (s *shown) print(e *console.Env, f console.Format) error {
	if done, err := console.PrintList(e, f, s); done {
		return err
	}
	r := s.newest()
	scaled := ""
	switch {
	case s.ScaleOn != "":
		scaled = fmt.Sprintf("from %d to %d by %s each", r.Least, r.Most, s.ScaleOn)
	case s.SLO != "" && r.Least < r.Most:
		scaled = fmt.Sprintf("from %d to %d by its objective", r.Least, r.Most)
	case r.Least == 0:
		scaled = "to none while there are no requests"
	}
	requests, cold := "", ""
	if m := s.Measured; m != nil {
		requests = fmt.Sprintf("%.1f per second, %d in flight", m.Rate, m.InFlight)
	}
	if c := s.ColdStart; c != nil {
		cold = fmt.Sprintf("%s, the median of %d", millis(c.Seconds), c.Of)
	}
	why := ""
	if s.WantWhy != "" {
		why = fmt.Sprintf("%d: %s", s.Want, s.WantWhy)
	}
	id, held := strconv.FormatUint(r.ID, 10), ""
	if alive := s.alive(); s.Updating {
		id += fmt.Sprintf(", replacing %d", alive[0].ID)
		if s.Held {
			held = fmt.Sprintf("held until a replica of %d is ready: those of %d keep running; berth cancel %d gives it up", r.ID, alive[0].ID, r.ID)
		}
	}
	console.KeyValues(e, "", "Service", s.Name, "User", s.User, "State", s.state(), "Revision", id, "Rollout", held,
		"Replicas", fmt.Sprintf("%d of %d ready, at most %d", s.Ready, s.Want, r.Most), "Scaled", scaled,
		"Wanted", why, "Forecast", s.forecast(e.Now().Location()), "Objective", s.objective(true), "Requests", requests, "Cold start", cold)
	if len(s.Replicas) == 0 {
		return nil
	}
	e.Printf("\n")
	t := console.Table{Cols: []console.Column{{Head: "REPLICA", Right: true}, {Head: "JOB", Right: true}, {Head: "STATE"}, {Head: "FOR", Right: true}, {Head: "NODE"}, {Head: "ADDRESS"}, {Head: "WHY", Shrink: true}}}
	for _, p := range s.Replicas {
		since, addr := "-", "-"
		if p.Since != nil {
			since = console.Clock(e.Now().Sub(*p.Since))
		}
		if p.Port != 0 {
			addr = fmt.Sprintf("%s:%d", p.Address, p.Port)
		}
		t.Add(p.id(), strconv.FormatUint(p.Job, 10), p.State, since, console.OrDash(p.Node), addr, p.Why)
	}
	t.Print(e)
	return nil
}
