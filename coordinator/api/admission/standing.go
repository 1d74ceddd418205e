package admission

import (
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
)

// enterAs does enterWarned, and gives the job its standing.
func (a *Admission) enterAs(who authorize.Caller, spec *cluster.Spec, parts []*cluster.Partition) (part *cluster.Partition, warnings []string, err error) {
	if part, warnings, err = enterWarned(spec, parts); err != nil {
		return nil, nil, err
	}
	more, err := a.enterStanding(who, spec)
	if err == nil {
		err = a.mayUse(who, spec, part)
	}
	return part, append(warnings, more...), err
}

// mayUse refuses a job that its partition does not admit. Administrators are in
// every group.
func (a *Admission) mayUse(who authorize.Caller, spec *cluster.Spec, part *cluster.Partition) error {
	if part == nil || part.Access == nil {
		return nil
	}
	e := part.Access.Refuses(part.Name, &cluster.Asker{
		Accounts: a.fsm.AccountsFrom(spec.Account), QOS: spec.QOS,
		InGroup: func(group string) bool {
			return who.Admin || group == strconv.FormatUint(uint64(who.GID), 10) || a.cfg.InGroup != nil && a.cfg.InGroup(who.Name, who.GID, group)
		},
	})
	if e == nil {
		return nil
	}
	return e
}

// enterStanding gives a job the account, the quality of service and the nice value
// that it runs under, or refuses it. Without accounts a name stays with the job, so
// that scripts written for another cluster run and reports can distinguish them.
func (a *Admission) enterStanding(who authorize.Caller, spec *cluster.Spec) (warnings []string, err error) {
	if spec.Nice < 0 && !who.Admin {
		return nil, cluster.Errorf(cluster.CodeDenied, "nice: %d would put the job ahead of others, which only administrators may do; use 0 to %d", spec.Nice, cluster.MaxNice)
	}
	accounts, qos := a.fsm.HasAccounts()
	if spec.Account != "" && !accounts {
		warnings = append(warnings, "account "+spec.Account+": this cluster has no accounts; the name is kept with the job")
	}
	if spec.QOS != "" && !qos {
		warnings = append(warnings, "qos "+spec.QOS+": this cluster has no qualities of service; the name is kept with the job")
	}
	if e := a.fsm.EnterStanding(cluster.Owner{UID: who.UID, Name: who.Name}, who.Admin, spec); e != nil {
		return warnings, e
	}
	return warnings, nil
}
