package console

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// StateCode returns the two-letter code of a state's long name; a state
// unknown to this client is returned unchanged.
func StateCode(name string) string {
	s, err := cluster.ParseJobState(name)
	if err != nil {
		return name
	}
	return s.Code()
}

// Terminal reports whether a job in this state has ended.
func Terminal(state string) bool {
	s, err := cluster.ParseJobState(state)
	return err == nil && s.Terminal()
}

// Waiting reports whether a job in this state has yet to start.
func Waiting(state string) bool {
	s, err := cluster.ParseJobState(state)
	return err == nil && s.Waiting()
}

// Elapsed returns how long a job has run, as squeue shows it: 5:03,
// 1:02:03, 2-03:04:05.
func Elapsed(e *Env, j *apiv1.Job) string {
	if j.GetStarted() == nil || Waiting(j.GetState()) {
		return "0:00"
	}
	end := e.Now()
	if j.GetEnded() != nil {
		end = j.GetEnded().AsTime()
	}
	return Clock(end.Sub(j.GetStarted().AsTime()))
}

// Clock formats a duration as Slurm does: 1-02:03:04, 2:03:04, 3:04.
func Clock(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	switch {
	case s >= 86400:
		return fmt.Sprintf("%d-%02d:%02d:%02d", s/86400, s/3600%24, s/60%60, s%60)
	case s >= 3600:
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	default:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
}

// CardsOf lists a job's GPUs, or says that it runs on cores instead.
func CardsOf(j *apiv1.Job) string {
	if OnCores(j) {
		return cluster.CPUType
	}
	return GpuNames(j.GetGpus())
}

// GpuNames lists GPUs as type:index, grouped by type: A100-SXM4-80GB:0,1.
func GpuNames(gpus []*apiv1.GPUShare) string {
	var b strings.Builder
	last := ""
	for i, g := range gpus {
		switch {
		case g.GetType() == "" && i > 0:
			b.WriteString("," + g.GetUuid())
		case g.GetType() == "":
			b.WriteString(g.GetUuid())
		case g.GetType() == last:
			fmt.Fprintf(&b, ",%d", g.GetIndex())
		default:
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%s:%d", g.GetType(), g.GetIndex())
		}
		last = g.GetType()
	}
	return OrDash(b.String())
}

// ShareText says how much of each GPU a job holds: "12.0 GiB, 30%", "4.0 GiB,
// 30%, cut from 12.0 GiB" if its share was cut to what it uses, or "whole
// GPU".
func ShareText(gpus []*apiv1.GPUShare) string {
	if len(gpus) == 0 {
		return "-"
	}
	s := gpus[0].GetShare()
	if s.GetExclusive() {
		return "whole GPU"
	}
	text := units.HumanMiB(s.GetMemMib()) + ", " + PercentOf(s.GetMilli())
	if g := s.GetGrantedMib(); g > 0 {
		text += ", cut from " + units.HumanMiB(g)
	}
	return text
}

// PercentOf formats thousandths as per cent.
func PercentOf(milli int64) string { return strconv.FormatInt((milli+5)/10, 10) + "%" }

// OrDash returns s, or "-" if it is empty.
func OrDash(s string) string {
	return cmp.Or(s, "-")
}

// NodesOf returns all nodes of a job as a host list, "" for none.
func NodesOf(j *apiv1.Job) string {
	if list := j.GetNodeList(); list != "" {
		return list
	}
	return j.GetNode()
}

// Pulling reports whether a job's node is fetching its image.
func Pulling(j *apiv1.Job) bool {
	return j.GetState() == cluster.JobStarting.String() && j.GetReason() == string(cluster.ReasonPulling)
}

// Where returns the node, or the reason in brackets for a job without one;
// both while its node fetches its image.
func Where(j *apiv1.Job) string {
	switch {
	case Pulling(j):
		return NodesOf(j) + " (" + j.GetReason() + ")"
	case j.GetNode() != "":
		return NodesOf(j)
	case Terminal(j.GetState()) && j.GetReason() == "":
		return "-"
	default:
		return "(" + OrNone(j.GetReason()) + ")"
	}
}

// OrNone returns s, or "none" if it is empty.
func OrNone(s string) string {
	return cmp.Or(s, "None")
}

// When formats an instant in the local time zone, "" for none.
func When(e *Env, t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().In(e.Now().Location()).Format("2006-01-02 15:04:05")
}

// ReasonText returns "Code: detail", "" for none.
func ReasonText(code, detail string) string {
	if code == "" || code == string(cluster.ReasonNone) {
		return detail
	}
	return cluster.Reason{Code: cluster.ReasonCode(code), Detail: detail}.String()
}

// Cores formats thousandths of a core as a decimal without trailing zeros.
func Cores(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
}

// CoresText formats thousandths of a core in words, such as 1 core or 2.5 cores.
func CoresText(milli int64) string {
	if milli == 1000 {
		return "1 core"
	}
	return Cores(milli) + " cores"
}

// MemOrDash formats MiB for people, or "-" for none.
func MemOrDash(mib int64) string {
	if mib <= 0 {
		return "-"
	}
	return units.HumanMiB(mib)
}

// SecondsText formats seconds for people.
func SecondsText(s float64) string {
	if s <= 0 {
		return "-"
	}
	return units.HumanDuration(time.Duration(s * float64(time.Second)))
}

// TimeText formats the predicted run time and, where it is known separately,
// what nine in ten runs take at most.
func TimeText(p *apiv1.Prediction) string {
	s, sure := p.GetSeconds(), p.GetTimeConfidence()
	if s <= 0 || sure <= 0 {
		return SecondsText(s)
	}
	return SecondsText(s) + " (90%: " + SecondsText(s*(3-1.5*min(1, sure))) + ")"
}

// Plural formats n with the word, in the plural unless n is 1.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Joined joins the elements with commas.
func Joined[T ~string](in []T) string {
	var b strings.Builder
	for i, s := range in {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(s))
	}
	return b.String()
}

// OnCores reports whether a job that requested GPUs was placed without them.
func OnCores(j *apiv1.Job) bool {
	return j.GetGpusWanted() > 0 && j.GetNode() != "" && len(j.GetGpus()) == 0 && !Waiting(j.GetState()) &&
		(j.GetSpec() == nil || j.GetSpec().GetOrCpu())
}

// BytesText rounds up to whole MiB, so that a small size does not look like none.
func BytesText(b int64) string {
	if b == 0 {
		return "0"
	}
	return units.HumanMiB((b + 1<<20 - 1) >> 20)
}

// Items returns the comma-separated elements of a list.
func Items(list string) []string {
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
