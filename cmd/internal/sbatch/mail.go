package sbatch

import (
	"github.com/berth-scheduler/berth/cluster"
)

// readMailType reads which events to mail about.
func readMailType(r *resolver, v string) (*verdict, error) {
	events, err := cluster.ParseMailEvents(v)
	if err != nil {
		return nil, Message("Invalid --mail-type specification")
	}
	r.req.Mail.Events = events
	return honour()
}

// readMailUser reads whom to mail.
func readMailUser(r *resolver, v string) (*verdict, error) {
	m := cluster.Mail{To: v}
	if err := m.Check(); err != nil {
		return &verdict{fate: Refused, note: err.Error()}, nil
	}
	r.req.Mail.To = v
	return honour()
}
