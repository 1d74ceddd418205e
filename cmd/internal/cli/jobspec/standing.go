package jobspec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// standingFields returns the fields for who is charged for a job, which
// rules it waits by, and how far it yields.
func standingFields() []Field {
	return []Field{
		{"account", "A", kindText, "account `NAME` to charge (see berth account list); by default yours", func(r *Request, v string) error {
			r.Spec.Account = strings.ToLower(v)
			return cluster.CheckAccountName(r.Spec.Account)
		}},
		{"qos", "", kindText, "QOS `NAME` (see berth qos list); by default the account's", func(r *Request, v string) error {
			r.Spec.QOS = strings.ToLower(v)
			return cluster.CheckQOSName(r.Spec.QOS)
		}},
		{"nice", "", kindAmount, "lower the job's priority by `NUMBER`; only administrators may raise it, with a negative one", func(r *Request, v string) error {
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n > cluster.MaxNice || n < -cluster.MaxNice {
				return fmt.Errorf("nice %s: want a whole number from -%d to %d", console.ShortQuote(v), cluster.MaxNice, cluster.MaxNice)
			}
			r.Spec.Nice = int32(n)
			return nil
		}},
	}
}
