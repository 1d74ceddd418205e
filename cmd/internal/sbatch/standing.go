package sbatch

import (
	"math"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Who is charged for a job, which rules it waits by, and how far it yields.

// readAccount reads the name in lower case, as Slurm does.
func readAccount(r *resolver, v string) (*verdict, error) {
	r.keep("account", v)
	r.req.Account = strings.ToLower(v)
	if err := cluster.CheckAccountName(r.req.Account); err != nil {
		return nil, Message(cluster.WordsNoAccount)
	}
	return honour()
}

func readQOS(r *resolver, v string) (*verdict, error) {
	r.keep("qos", v)
	r.req.QOS = strings.ToLower(v)
	if err := cluster.CheckQOSName(r.req.QOS); err != nil {
		return nil, Message(cluster.WordsNoQOS)
	}
	return honour()
}

// defaultNice is the value of --nice alone.
const defaultNice = 100

func readNice(r *resolver, v string) (*verdict, error) {
	n := int64(defaultNice)
	if v != "" {
		var err error
		if n, err = strconv.ParseInt(v, 10, 64); err != nil {
			return nil, Message("Invalid numeric value \"" + v + "\" for --nice.")
		}
	}
	if n > cluster.MaxNice || n < -cluster.MaxNice {
		return nil, Message("Invalid --nice value, outside of valid range")
	}
	r.req.Nice = int32(min(n, math.MaxInt32))
	return honour()
}
