package experiment

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim"
)

// following is a variant of ffd whose jobs' memory takes a while to reach its peak.
type following struct {
	name string
	// mode is whether shares stay as granted.
	mode cluster.ResizeMode
	// late is the part of the jobs that leap late.
	late float64
	// know sets where predictions differ from the experiment's.
	know func(*sim.Errors)
}

func (c *Config) resizes() bool { return c.Resize != "" && c.Resize != cluster.ResizeOff }

// following returns the variants that Resize adds.
func (c *Config) following() (out []following) {
	if !c.resizes() {
		return nil
	}
	for _, v := range []struct {
		name string
		know func(*sim.Errors)
	}{
		{"ffd", func(*sim.Errors) {}},
		{"ffd, twice the memory reserved", func(e *sim.Errors) { e.MemMargin = 1 }},
		{"ffd, nothing known", func(e *sim.Errors) { e.Hide = true }},
	} {
		out = append(out,
			following{v.name + ", memory rises", cluster.ResizeOff, 0, v.know},
			following{v.name + ", " + c.Resize.String(), c.Resize, 0, v.know},
			following{v.name + ", " + c.Resize.String() + ", late growers", c.Resize, lateGrowers, v.know})
	}
	return out
}

// lateGrowers is the part of jobs whose memory leaps late, if some do.
const lateGrowers = 0.2

// apply sets the options of a run.
func (f following) apply(o *sim.Options) {
	o.Resize, o.Rise = f.mode, sim.Rise{PeakAt: sim.DefaultPeakAt, Late: f.late}
	f.know(&o.Errors)
}

// followed records what is assumed of them.
func (r *Report) followed(c *Config) {
	if !c.resizes() {
		return
	}
	r.Columns = append(r.Columns, "cuts", "growths", "harmed", "reserved_over_used")
	r.Assumptions = append(r.Assumptions,
		"where memory rises, an attempt comes to its peak in ten equal steps over the first 5 % of its run time, and who takes more than others leave it is ended at once",
		"late growers are one job in five: half of the peak until a moment drawn from its run, and then the rest in one leap",
		"twice the memory reserved: what is predicted at most is twice what is expected; nothing known: each job begins with a whole GPU")
}

// followedTo claims the targets of right-sizing over a variant, in per cent:
// utilization by its name, and makespan.
func (r *Report) followedTo(c *Config, over, used string, most, makespan float64) {
	if !c.resizes() {
		return
	}
	with := "ffd, " + c.Resize.String()
	r.Claims = append(r.Claims,
		atLeast(used+" of "+with+" over "+over+", %", most, r.change(over, with, used)),
		atMost("makespan of "+with+" over "+over+", %", makespan, r.change(over, with, "makespan_s")))
}
