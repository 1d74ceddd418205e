package acctcmd

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// csvFlag is --raw, for -o csv.
type csvFlag struct{ raw bool }

func (f *csvFlag) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.raw, "raw", false, "with -o csv, print text as is; by default control characters are escaped, and what a\nspreadsheet would take for a formula is prefixed with '")
}

func (f *csvFlag) cells(o console.Format) (console.Cells, error) {
	switch {
	case !f.raw:
		return console.CellsGuarded, nil
	case o != console.FormatCSV:
		return 0, console.Usagef("--raw: only for -o csv")
	}
	return console.CellsRaw, nil
}

// filterFlags are the flags that select jobs.
type filterFlags struct {
	users, accounts, partitions, states, names string
	since, until, last                         string
	me                                         bool
}

func (f *filterFlags) add(fs *pflag.FlagSet) {
	fs.StringVarP(&f.users, "user", "u", "", "only jobs of these users, a comma-separated `LIST` of names or numbers")
	fs.BoolVar(&f.me, "me", false, "only your own jobs")
	fs.StringVarP(&f.accounts, "account", "A", "", "only jobs of these accounts, a comma-separated `LIST`")
	fs.StringVarP(&f.partitions, "partition", "p", "", "only jobs of these partitions, a comma-separated `LIST`")
	fs.StringVarP(&f.states, "state", "t", "", "only jobs that ended in these states, a comma-separated `LIST` of names or codes")
	fs.StringVarP(&f.names, "name", "n", "", "only jobs with these names, a comma-separated `LIST`")
	fs.StringVar(&f.since, "since", "", "only jobs that ended at this `TIME` or later: 2026-03-01, 2026-03-01T08:00, 08:00, today, now-2hours")
	fs.StringVar(&f.until, "until", "", "only jobs that ended before this `TIME`")
	fs.StringVar(&f.last, "last", "", "only jobs that ended in the last `TIME`, such as 12h, 7d, 4w")
}

// filter reads the flags, and the typed jobs and tasks.
func (f *filterFlags) filter(ctx context.Context, e *console.Env, c *client.Client, args []string) (*apiv1.HistoryFilter, client.JobRefs, error) {
	refs, err := client.ParseJobRefs(ctx, c, args)
	if err != nil {
		return nil, nil, err
	}
	q := &apiv1.HistoryFilter{Ids: refs.IDs(), Users: console.Items(f.users), Accounts: console.Items(f.accounts), Partitions: console.Items(f.partitions), Names: console.Items(f.names)}
	if f.me {
		me := e.User()
		if me == "" {
			return nil, nil, console.Usagef("--me: your user name is not known; give it with --user")
		}
		q.Users = append(q.Users, me)
	}
	for _, s := range console.Items(f.states) {
		st, err := cluster.ParseJobState(strings.ToUpper(s))
		if err != nil || !st.Terminal() {
			var known []string
			for k := cluster.JobCompleted; k <= cluster.JobDeadline; k++ {
				known = append(known, k.String())
			}
			return nil, nil, console.Usagef("--state %s: want some of %s%s", console.ShortQuote(s), strings.Join(known, ", "), console.DidYouMean(s, known))
		}
		q.States = append(q.States, st.String())
	}
	return q, refs, f.times(q, e.Now())
}

func (f *filterFlags) times(q *apiv1.HistoryFilter, now time.Time) error {
	if f.last != "" && f.since != "" {
		return console.Usagef("--last and --since: give only one of them")
	}
	if f.last != "" {
		d, err := lastSpan(f.last)
		if err != nil {
			return err
		}
		q.EndedFrom = timestamppb.New(now.Add(-d))
	}
	for _, x := range []struct {
		flag, text string
		to         **timestamppb.Timestamp
	}{{"--since", f.since, &q.EndedFrom}, {"--until", f.until, &q.EndedBefore}} {
		if x.text == "" {
			continue
		}
		t, ok := slurm.ParseTime(x.text, now)
		if !ok {
			return console.Usagef("%s %s: want a time such as 2026-03-01, 2026-03-01T08:00, 08:00, today or now-2hours", x.flag, console.ShortQuote(x.text))
		}
		*x.to = timestamppb.New(t)
	}
	if q.EndedFrom != nil && q.EndedBefore != nil && !q.EndedBefore.AsTime().After(q.EndedFrom.AsTime()) {
		return console.Usagef("--until: must be after the start of the period")
	}
	return nil
}

// lastSpan reads a duration back from now, in weeks too.
func lastSpan(text string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(text, "w"); ok {
		if d, err := units.ParseDuration(n + "d"); err == nil && d <= units.MaxTime/7 {
			return 7 * d, nil
		}
	}
	d, err := units.ParseDuration(text)
	if err != nil || !strings.ContainsAny(text, "smhd") {
		return 0, console.Usagef("--last %s: want a time such as 90m, 12h, 7d or 4w", console.ShortQuote(text))
	}
	return d, nil
}

// bounded reports whether the filter selects a time or particular jobs.
func bounded(q *apiv1.HistoryFilter) bool {
	return q.EndedFrom != nil || q.EndedBefore != nil || len(q.Ids) > 0
}

// warnGaps warns on stderr about what may be missing.
func warnGaps(e *console.Env, gaps client.HistoryGaps) {
	for _, text := range gaps.Texts() {
		e.Warnf("%s", text)
	}
}
