package slurm

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Record is how scontrol show writes records: lines of KEY=value, or all in one line.
type Record struct {
	// OneLine is -o, Detail -d.
	OneLine, Detail bool
}

func (r *Record) write(w io.Writer, lines []string, end string) error {
	if r.OneLine {
		_, err := io.WriteString(w, strings.Join(lines, " ")+" \n")
		return err
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n   ")+end)
	return err
}

// Job prints a job as scontrol show job does.
func (r *Record) Job(w io.Writer, j *Job) error {
	lines := r.jobWho(j)
	lines = append(lines, r.jobWhen(j)...)
	lines = append(lines, r.jobWhere(j)...)
	lines = append(lines, r.jobFiles(j)...)
	return r.write(w, lines, "\n   \n\n")
}

func (r *Record) jobWho(j *Job) []string {
	lines := []string{
		fmt.Sprintf("JobId=%d %sJobName=%s", j.ID, j.arrayWords(), j.Name),
		fmt.Sprintf("UserId=%s(%d) GroupId=%s(%d) MCS_label=N/A", j.User, j.UID, j.Group, j.GID),
		fmt.Sprintf("Priority=%d Nice=%d Account=%s QOS=%s", j.Priority, j.Nice, orNull(j.Account), orNull(j.QOS)),
		fmt.Sprintf("JobState=%s Reason=%s Dependency=%s", j.State, cmp.Or(j.Reason, "None"), orNull(j.Dependency)),
		fmt.Sprintf("Requeue=%d Restarts=%d BatchFlag=1 Reboot=0 ExitCode=%s", flag(j.Requeue), j.Restarts, j.exits()),
	}
	if r.Detail {
		lines = append(lines, "DerivedExitCode="+j.exits())
	}
	return lines
}

// arrayWords says which tasks of an array it is.
func (j *Job) arrayWords() string {
	if j.ArrayID == 0 {
		return ""
	}
	s := fmt.Sprintf("ArrayJobId=%d ArrayTaskId=%s ", j.ArrayID, j.Listed())
	if j.Throttle > 0 {
		s += fmt.Sprintf("ArrayTaskThrottle=%d ", j.Throttle)
	}
	return s
}

func (r *Record) jobWhen(j *Job) []string {
	start, end, limit := j.Times.Stamp(j.Started, ""), j.Times.Stamp(j.Ended, "Unknown"), "UNLIMITED"
	from := j.Started
	if j.Started.IsZero() {
		start, from = j.Times.Stamp(j.Expected, "Unknown"), j.Expected
	}
	if j.Limit > 0 {
		limit = text.Clock(j.Limit)
		if j.Ended.IsZero() && !from.IsZero() {
			end = j.Times.Stamp(from.Add(j.Limit), "")
		}
	}
	if start == "Unknown" && !j.Ended.IsZero() {
		start = end // Slurm's value for a job that ended without a start
	}
	return []string{
		fmt.Sprintf("RunTime=%s TimeLimit=%s TimeMin=N/A", text.Clock(j.Ran), limit),
		fmt.Sprintf("SubmitTime=%s EligibleTime=%s", j.Times.Stamp(j.Submitted, "Unknown"), j.Times.Stamp(j.Eligible, "Unknown")),
		fmt.Sprintf("AccrueTime=%s", j.Times.Stamp(j.Eligible, "Unknown")),
		fmt.Sprintf("StartTime=%s EndTime=%s Deadline=%s", start, end, j.Times.Stamp(j.Deadline, "N/A")),
		fmt.Sprintf("SuspendTime=None SecsPreSuspend=0 LastSchedEval=%s Scheduler=Main", j.Times.Stamp(j.LastEval, "Unknown")),
	}
}

func (r *Record) jobWhere(j *Job) []string {
	lines := []string{
		fmt.Sprintf("Partition=%s AllocNode:Sid=%s", j.Partition, cmp.Or(j.SubmitHost, "localhost:0")),
		fmt.Sprintf("ReqNodeList=%s ExcNodeList=%s", orNull(j.ReqNodes), orNull(j.Exclude)),
		"NodeList=" + j.NodeList,
	}
	if j.NodeList != "" {
		lines = append(lines, "BatchHost="+j.FirstNode())
	}
	each := cmp.Or(j.MinCPUs, j.CPUs)
	lines = append(lines,
		fmt.Sprintf("NumNodes=%d NumCPUs=%d NumTasks=%d CPUs/Task=%d ReqB:S:C:T=0:0:*:*", j.Nodes, j.CPUs, max(1, j.Tasked), j.PerTask()),
		"TRES="+j.TRES(),
		"Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
	)
	if r.Detail && j.NodeList != "" && j.GresUsed != "" {
		gres, _, _ := strings.Cut(j.GresUsed, "(")
		lines = append(lines, "JOB_GRES="+gres, fmt.Sprintf("  Nodes=%s CPU_IDs=%s Mem=%d GRES=%s", j.NodeList, j.CPUIDs, j.MemUsedMiB, j.GresUsed))
	}
	lines = append(lines,
		fmt.Sprintf("MinCPUsNode=%d MinMemoryNode=%s MinTmpDiskNode=0", each, text.Memory(j.MinMemMiB)),
		fmt.Sprintf("Features=%s DelayBoot=00:00:00", orNull(j.Features)),
	)
	if j.Reservation != "" {
		lines = append(lines, "Reservation="+j.Reservation)
	}
	return append(lines,
		fmt.Sprintf("OverSubscribe=%s Contiguous=0 Licenses=(null) Network=(null)", j.shares()),
	)
}

func (r *Record) jobFiles(j *Job) []string {
	lines := []string{"Command=" + orNull(j.Command), "WorkDir=" + j.Dir}
	switch {
	case j.Comment != "" && r.OneLine:
		lines = append(lines, "Comment="+j.Comment)
	case j.Comment != "":
		lines = append(lines, "Comment="+j.Comment+" ")
	}
	lines = append(lines, "StdErr="+j.Stderr, "StdIn="+cmp.Or(j.Stdin, "/dev/null"), "StdOut="+j.Stdout, "Power=")
	if j.Switches > 0 {
		lines = append(lines, fmt.Sprintf("Switches=%d@%s", j.Switches, text.Clock(j.SwitchWait)))
	}
	if j.Gres != "" {
		lines = append(lines, "TresPerNode="+j.Gres)
	}
	if j.MailType != "" {
		lines = append(lines, "MailUser="+j.MailUser+" MailType="+j.MailType)
	}
	return lines
}

// TRES returns the trackable resources it takes; Slurm leaves out memory that
// was given without being requested.
func (j *Job) TRES() string {
	s := fmt.Sprintf("cpu=%d,", j.CPUs)
	if j.MemUsedMiB > 0 {
		s += "mem=" + text.Memory(j.MemUsedMiB) + ","
	}
	s += fmt.Sprintf("node=%d,billing=%d", j.Nodes, j.CPUs)
	return s + gpuTRES(int64(j.GPUs))
}

// Node prints a node as scontrol show node does.
func (r *Record) Node(w io.Writer, n *Node) error {
	lines := []string{
		fmt.Sprintf("NodeName=%s Arch=%s CoresPerSocket=1 ", n.Name, cmp.Or(n.Arch, "x86_64")),
		fmt.Sprintf("CPUAlloc=%d CPUEfctv=%d CPUTot=%d CPULoad=%s", n.CPUsUsed, n.CPUs, n.CPUs, orNA(n.Load)),
		"AvailableFeatures=" + orNull(strings.Join(n.Features, ",")),
		"ActiveFeatures=" + orNull(strings.Join(n.Features, ",")),
		"Gres=" + orNull(n.Gres),
		fmt.Sprintf("NodeAddr=%s NodeHostName=%s Version=%s", n.Addr, n.Host, n.Version),
		"OS=" + cmp.Or(n.OS, "Linux"),
		fmt.Sprintf("RealMemory=%d AllocMem=%d FreeMem=%d Sockets=%d Boards=1", n.MemMiB, n.MemUsed, n.FreeMem, n.CPUs),
		fmt.Sprintf("State=%s ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A", n.starred()),
		"Partitions=" + strings.Join(n.Partitions, ",") + " ",
		fmt.Sprintf("BootTime=%s SlurmdStartTime=%s", n.Times.Stamp(n.Boot, "None"), n.Times.Stamp(n.Registered, "None")),
		"LastBusyTime=" + n.Times.Stamp(n.Contact, "Unknown"),
		"CfgTRES=" + n.Configured(),
		"AllocTRES=" + n.Allocated(),
		"CapWatts=n/a",
		"CurrentWatts=0 AveWatts=0",
		"ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
	}
	if n.Reason != "" {
		lines = append(lines, fmt.Sprintf("Reason=%s [%s@%s]", n.Reason, n.user(), n.Times.Stamp(n.ReasonAt, "Unknown")))
	}
	return r.write(w, lines, "\n\n")
}

func (n *Node) starred() string {
	if n.Silent {
		return n.State + "*"
	}
	return n.State
}

// Allocated returns the trackable resources in use on it, "" for none.
func (n *Node) Allocated() string {
	if n.CPUsUsed == 0 && n.MemUsed == 0 && n.GPUsUsed == 0 {
		return ""
	}
	s := fmt.Sprintf("cpu=%d", n.CPUsUsed)
	if n.MemUsed > 0 {
		s += ",mem=" + text.Memory(n.MemUsed)
	}
	return s + gpuTRES(n.GPUsUsed)
}

// Configured returns the trackable resources it has.
func (n *Node) Configured() string {
	return fmt.Sprintf("cpu=%d,mem=%s,billing=%d%s", n.CPUs, text.Memory(n.MemMiB), n.CPUs, gpuTRES(n.GPUs))
}

// gpuTRES formats a number of GPUs as a trackable resource, "" for none.
func gpuTRES(n int64) string {
	if n == 0 {
		return ""
	}
	return ",gres/gpu=" + number(n)
}

// Partition prints a partition as scontrol show partition does.
func (r *Record) Partition(w io.Writer, p *Partition, nodes []Node) error {
	var cpus, mem, gpus int64
	var count int
	for i := range nodes {
		for _, name := range p.Nodes {
			if nodes[i].Name == name {
				cpus, mem, gpus, count = cpus+nodes[i].CPUs, mem+nodes[i].MemMiB, gpus+nodes[i].GPUs, count+1
			}
		}
	}
	yes := map[bool]string{true: "YES", false: "NO"}[p.Default]
	state := map[bool]string{true: "UP", false: "DOWN"}[p.Up]
	most, usual := "UNLIMITED", "NONE"
	if p.MaxTime > 0 {
		most = text.Clock(p.MaxTime)
	}
	if p.DefaultTime > 0 {
		usual = text.Clock(p.DefaultTime)
	}
	return r.write(w, []string{
		"PartitionName=" + p.Name,
		accessLine(p),
		fmt.Sprintf("AllocNodes=ALL Default=%s QoS=N/A", yes),
		fmt.Sprintf("DefaultTime=%s DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO", usual),
		fmt.Sprintf("MaxNodes=UNLIMITED MaxTime=%s MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED", most),
		"Nodes=" + hostnames.FoldSet(p.Nodes),
		"PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
		"OverTimeLimit=NONE PreemptMode=OFF",
		fmt.Sprintf("State=%s TotalCPUs=%d TotalNodes=%d SelectTypeParameters=NONE", state, cpus, count),
		"JobDefaults=(null)",
		"DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
		fmt.Sprintf("TRES=cpu=%d,mem=%s,node=%d,billing=%d%s", cpus, text.Memory(mem), count, cpus, gpuTRES(gpus)),
	}, "\n\n")
}

// accessLine says who may use a partition: as in Slurm, denied names take the
// place of allowed ones.
func accessLine(p *Partition) string {
	names := func(key string, list []string) string {
		if len(list) == 0 {
			return key + "=ALL"
		}
		return key + "=" + strings.Join(list, ",")
	}
	line := names("AllowGroups", p.AllowGroups)
	if len(p.DenyAccounts) > 0 {
		line += " " + names("DenyAccounts", p.DenyAccounts)
	} else {
		line += " " + names("AllowAccounts", p.AllowAccounts)
	}
	if len(p.DenyQOS) > 0 {
		return line + " " + names("DenyQos", p.DenyQOS)
	}
	return line + " " + names("AllowQos", p.AllowQOS)
}
