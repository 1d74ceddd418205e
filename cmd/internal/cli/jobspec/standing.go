package jobspec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// standingFields say who is charged for a job, by which rules it waits, and how
// far it steps back.
func standingFields() []Field {
	return []Field{
		{"account", "A", kindText, "`NAME` of the account to charge, as berth account list shows it; by default yours", func(r *Request, v string) error {
			r.Spec.Account = strings.ToLower(v)
			return cluster.CheckAccountName(r.Spec.Account)
		}},
		{"qos", "", kindText, "`NAME` of the quality of service, as berth qos list shows it; by default the account's", func(r *Request, v string) error {
			r.Spec.QOS = strings.ToLower(v)
			return cluster.CheckQOSName(r.Spec.QOS)
		}},
		{"nice", "", kindAmount, "step back behind other jobs by `NUMBER`; only administrators may step forward, by one below 0", func(r *Request, v string) error {
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n > cluster.MaxNice || n < -cluster.MaxNice {
				return fmt.Errorf("nice %s: want a whole number from -%d to %d", console.ShortQuote(v), cluster.MaxNice, cluster.MaxNice)
			}
			r.Spec.Nice = int32(n)
			return nil
		}},
	}
}
