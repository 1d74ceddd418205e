package slurm

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Managed is what sacctmgr shows of one item: text by field name in lower
// case, without spaces.
type Managed map[string]string

// managed returns a field of sacctmgr, named by its head.
func managed(head string, width int) field[Managed] {
	key := strings.ToLower(strings.ReplaceAll(head, " ", ""))
	return field[Managed]{head, width, func(m *Managed) string { return (*m)[key] }}
}

// managedFields are all fields that sacctmgr show accepts for the items
// supported here, by their heads, in the widths of sacctmgr 22.05.
var managedFields = []field[Managed]{
	managed("Account", 10), managed("Admin", 9), managed("Cluster", 10), managed("ControlHost", 15), managed("ControlPort", 12),
	managed("Coord Accounts", 20), managed("Count", 6), managed("Def Acct", 10), managed("Def QOS", 9), managed("Descr", 20), managed("Flags", 20),
	managed("GraceTime", 10), managed("GrpJobs", 7), managed("GrpSubmit", 9), managed("GrpTRES", 13), managed("GrpTRESMins", 13),
	managed("GrpTRESRunMin", 13), managed("GrpWall", 11), managed("ID", 6), managed("MaxJobs", 7), managed("MaxJobsPA", 9), managed("MaxJobsPU", 9),
	managed("MaxSubmit", 9), managed("MaxSubmitPA", 11), managed("MaxSubmitPU", 11), managed("MaxTRES", 13), managed("MaxTRESMins", 13),
	managed("MaxTRESPA", 13), managed("MaxTRESPerNode", 14), managed("MaxTRESPU", 13), managed("MaxWall", 11), managed("MinTRES", 13), managed("Name", 10),
	managed("Org", 20), managed("Par Name", 10), managed("Partition", 10), managed("Preempt", 10), managed("PreemptExemptTime", 19),
	managed("PreemptMode", 11), managed("Priority", 10), managed("QOS", 20), managed("RPC", 5), managed("Share", 9), managed("Type", 8),
	managed("UsageFactor", 11), managed("UsageThres", 10), managed("User", 10),
}

// managedNames are other names of fields, as used in options.
var managedNames = map[string]string{
	"adminlevel": "Admin", "coordinators": "Coord Accounts", "defaultaccount": "Def Acct", "defaultqos": "Def QOS", "description": "Descr", "fairshare": "Share", "shares": "Share",
	"grpsubmitjobs": "GrpSubmit", "maxsubmitjobs": "MaxSubmit", "maxtresperjob": "MaxTRES", "maxjobsperuser": "MaxJobsPU", "maxsubmitjobsperuser": "MaxSubmitPU",
	"maxtresperuser": "MaxTRESPU", "maxjobsperaccount": "MaxJobsPA", "maxsubmitjobsperaccount": "MaxSubmitPA", "maxtresperaccount": "MaxTRESPA",
	"maxwalldurationperjob": "MaxWall", "organization": "Org", "parentname": "Par Name", "parent": "Par Name", "preemptexempttime": "PreemptExemptTime",
	"qoslevel": "QOS", "usagethreshold": "UsageThres", "defaultacct": "Def Acct", "grptresrunmins": "GrpTRESRunMin",
}

// Sacctmgr is how sacctmgr show prints.
type Sacctmgr struct {
	// Format names fields, each with %WIDTH; "" is Usual, which is also separated
	// by commas.
	Format, Usual string
	Layout
}

// Print writes the rows.
func (s *Sacctmgr) Print(w io.Writer, rows []Managed) error {
	var names []string
	for name := range strings.SplitSeq(cmp.Or(s.Format, s.Usual), ",") {
		names = append(names, managedName(name))
	}
	fields, err := fieldsNamed(strings.Join(names, ","), managedFields)
	if err != nil {
		return text.Message(strings.Replace(err.Error(), "Invalid field requested: ", " Unknown field ", 1))
	}
	var b strings.Builder
	fieldHeads(&s.Layout, &b, fields)
	for i := range rows {
		fieldLine(&s.Layout, &b, fields, func(f *field[Managed]) string { return f.value(&rows[i]) })
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// managedName returns a field's name in the table, given its head without
// spaces, another of its names, or a prefix of one.
func managedName(asked string) string {
	name, width, sized := strings.Cut(strings.TrimSpace(asked), "%")
	plain := strings.ToLower(name)
	if sized {
		width = "%" + width
	}
	if plain == "" {
		return asked
	}
	for _, f := range managedFields {
		if head := strings.ToLower(strings.ReplaceAll(f.name, " ", "")); head == plain || strings.HasPrefix(head, plain) && managedNames[plain] == "" {
			return f.name + width
		}
	}
	if head := managedNames[plain]; head != "" {
		return head + width
	}
	var found []string
	for other := range managedNames {
		if strings.HasPrefix(other, plain) {
			found = append(found, other)
		}
	}
	if len(found) == 0 {
		return asked
	}
	slices.Sort(found)
	return managedNames[found[0]] + width
}
