package slurm

import (
	"io"
	"math"
	"strconv"
	"strings"
)

// The formats of sshare without -o, and with -l.
const (
	shareFormat = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
	shareLong   = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
)

// Share is an account, or a user of one, in Slurm's terms.
type Share struct {
	Account, Cluster string
	// User is "" for the account itself; Depth is how far it is below the
	// topmost of its ancestors shown.
	User  string
	Depth int
	// Shares are its own, NormShares its fraction of those of its siblings; the
	// root has none.
	Shares     int64
	NormShares float64
	// RawUsage is what it used in GPU-seconds, after decay; NormUsage its
	// fraction of all usage, EffUsage that of the usage of its siblings.
	RawUsage            int64
	NormUsage, EffUsage float64
	// FairShare is 1 for the one that goes first and nearly 0 for the last.
	FairShare float64
}

// Root is the name of the account above all others.
const Root = "root"

func (s *Share) root() bool { return s.User == "" && s.Account == Root && s.Depth == 0 }

// levelFS returns how much of its share is left: above 1 for an account that
// used less than its shares.
func (s *Share) levelFS() string {
	switch {
	case s.root():
		return ""
	case s.EffUsage == 0:
		return "inf"
	}
	return double(s.NormShares / s.EffUsage)
}

func double(f float64) string {
	if math.IsInf(f, 1) {
		return "inf"
	}
	return strconv.FormatFloat(f, 'f', 6, 64)
}

// shareFields are all fields of sshare 22.05 in the order of --helpformat, with
// their widths.
var shareFields = []field[Share]{
	{"Account", -20, func(s *Share) string { return strings.Repeat(" ", s.Depth) + s.Account }},
	{"Cluster", 10, func(s *Share) string { return s.Cluster }},
	{"EffectvUsage", 13, func(s *Share) string { return double(s.EffUsage) }},
	{"FairShare", 10, func(s *Share) string {
		if s.User == "" {
			return ""
		}
		return double(s.FairShare)
	}},
	{"GrpTRESMins", 30, func(*Share) string { return "" }},
	{"GrpTRESRaw", 30, func(*Share) string { return "" }},
	{"ID", 6, func(*Share) string { return "" }},
	{"LevelFS", 10, (*Share).levelFS},
	{"NormShares", 11, func(s *Share) string { return double(s.NormShares) }},
	{"NormUsage", 11, func(s *Share) string {
		if s.root() {
			return ""
		}
		return double(s.NormUsage)
	}},
	{"Partition", 12, func(*Share) string { return "" }},
	{"RawShares", 10, func(s *Share) string {
		if s.root() {
			return ""
		}
		return strconv.FormatInt(s.Shares, 10)
	}},
	{"RawUsage", 11, func(s *Share) string { return strconv.FormatInt(s.RawUsage, 10) }},
	{"TRESRunMins", 30, func(*Share) string { return "" }},
	{"User", 10, func(s *Share) string { return s.User }},
}

// Sshare holds the options of sshare.
type Sshare struct {
	Layout
	// Format names fields as sacct's does; "" is Slurm's default. Long and
	// Partitions are -l and -m, UsersOnly is -U.
	Format                      string
	Long, Partitions, UsersOnly bool
}

// ShareFields lists the fields in columns, as -e does.
func ShareFields() string { return fieldNames(shareFields, "%-17s") }

// Print writes the shares as sshare does, in the order given. The error names
// an unknown field; then nothing was written.
func (a *Sshare) Print(w io.Writer, shares []Share) error {
	list := a.Format
	if list == "" {
		if list = shareFormat; a.Long {
			list = shareLong
		}
		if a.Partitions {
			list = strings.Replace(list, "User,", "User,Partition,", 1)
		}
	}
	fields, err := fieldsNamed(strings.TrimSuffix(list, ","), shareFields)
	if err != nil {
		return err
	}
	var b strings.Builder
	fieldHeads(&a.Layout, &b, fields)
	for i := range shares {
		s := shares[i]
		if a.UsersOnly {
			if s.Depth = 0; s.User == "" {
				continue
			}
		}
		fieldLine(&a.Layout, &b, fields, func(f *field[Share]) string { return f.value(&s) })
	}
	_, err = io.WriteString(w, b.String())
	return err
}
