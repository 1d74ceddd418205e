package view

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ShowDetail prints what the agent of n knows of its GPUs beyond the
// node's table; nothing until it has reported.
func ShowDetail(e *console.Env, n *apiv1.Node) {
	told := func(g *apiv1.GPU) bool { return g.GetDetail() != nil }
	if !slices.ContainsFunc(n.GetGpus(), told) {
		return
	}
	e.Printf("\n")
	t := &console.Table{Cols: []console.Column{
		{Head: "GPU", Right: true}, {Head: "UUID"}, {Head: "DRIVER"}, {Head: "CUDA"}, {Head: "COMPUTE"}, {Head: "POWER", Right: true},
		{Head: "NVLINK"}, {Head: "NUMA"}, {Head: "MIG"}, {Head: "PCI"},
	}}
	for _, g := range n.GetGpus() {
		d := g.GetDetail()
		if d == nil {
			continue
		}
		power, link, numa := "-", "-", "-"
		if d.GetPowerLimitW() > 0 {
			power = fmt.Sprintf("%dW", d.GetPowerLimitW())
		}
		if d.GetNvlinkGroup() > 0 {
			link = "group " + strconv.Itoa(int(d.GetNvlinkGroup()))
		}
		if d.GetNuma() >= 0 {
			numa = strconv.Itoa(int(d.GetNuma()))
		}
		t.Add(strconv.Itoa(int(g.GetIndex())), g.GetUuid(), console.OrDash(d.GetDriver()), console.OrDash(d.GetCuda()), console.OrDash(d.GetCompute()), power, link, numa,
			console.OrDash(d.GetMig()), console.OrDash(d.GetPci()))
	}
	t.Print(e)
	for _, g := range n.GetGpus() {
		d := g.GetDetail()
		for _, in := range d.GetInstances() {
			e.Printf("GPU %d has instance %s: %s, %s, %d SMs\n", g.GetIndex(), console.Escape(in.GetUuid()), console.Escape(console.OrDash(in.GetProfile())),
				units.HumanMiB(in.GetMemMib()), in.GetSms())
		}
		if d.GetPersistence() == "off" {
			e.Printf("GPU %d has persistence mode off; enable nvidia-persistenced\n", g.GetIndex())
		}
	}
	for _, g := range n.GetGpus() {
		showStrays(e, g)
	}
}

// showStrays names the processes that use a GPU outside Berth.
func showStrays(e *console.Env, g *apiv1.GPU) {
	d := g.GetDetail()
	for _, s := range d.GetStrays() {
		held := "an unknown part"
		if s.GetMemMib() >= 0 {
			held = units.HumanMiB(s.GetMemMib())
		}
		e.Printf("GPU %d: process %d (%s, %s) was not started through Berth and holds %s\n",
			g.GetIndex(), s.GetPid(), console.Escape(console.OrDash(s.GetUser())), console.Escape(console.OrDash(s.GetCommand())), held)
	}
	if m := g.GetGossipStrayMib(); m > 0 {
		e.Printf("GPU %d: %s more are held outside Berth, as the node gossips; nothing is placed there\n", g.GetIndex(), units.HumanMiB(m))
	}
	if d.GetStrayMib() > 0 {
		e.Printf("GPU %d: %s are not allocated because of that\n", g.GetIndex(), units.HumanMiB(d.GetStrayMib()))
	}
}

// detailView is absent until the agent has reported to the leader.
type detailView struct {
	Name        string         `json:"name"`
	Driver      string         `json:"driver"`
	CUDA        string         `json:"cuda"`
	Compute     string         `json:"compute"`
	PCI         string         `json:"pci"`
	NUMA        int32          `json:"numa"`
	PowerLimitW uint32         `json:"power_limit_w"`
	NVLinkGroup uint32         `json:"nvlink_group"`
	MIG         string         `json:"mig"`
	Persistence string         `json:"persistence"`
	Instances   []instanceView `json:"instances"`
	Strays      []strayView    `json:"strays"`
	StrayMiB    int64          `json:"stray_mib"`
}

type instanceView struct {
	UUID    string `json:"uuid"`
	Profile string `json:"profile"`
	MemMiB  int64  `json:"mem_mib"`
	SMs     uint32 `json:"sms"`
}

// strayView has -1 for memory that the driver does not report.
type strayView struct {
	PID     int64  `json:"pid"`
	User    string `json:"user"`
	Command string `json:"command"`
	MemMiB  int64  `json:"mem_mib"`
}

func viewDetail(d *apiv1.GPUDetail) *detailView {
	if d == nil {
		return nil
	}
	v := &detailView{
		Name: d.GetName(), Driver: d.GetDriver(), CUDA: d.GetCuda(), Compute: d.GetCompute(), PCI: d.GetPci(), NUMA: d.GetNuma(),
		PowerLimitW: d.GetPowerLimitW(), NVLinkGroup: d.GetNvlinkGroup(), MIG: d.GetMig(), Persistence: d.GetPersistence(),
		Instances: []instanceView{}, Strays: []strayView{}, StrayMiB: d.GetStrayMib(),
	}
	for _, in := range d.GetInstances() {
		v.Instances = append(v.Instances, instanceView{in.GetUuid(), in.GetProfile(), in.GetMemMib(), in.GetSms()})
	}
	for _, s := range d.GetStrays() {
		v.Strays = append(v.Strays, strayView{s.GetPid(), s.GetUser(), s.GetCommand(), s.GetMemMib()})
	}
	return v
}
