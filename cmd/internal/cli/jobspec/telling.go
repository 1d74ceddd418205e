package jobspec

import (
	"cmp"
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// MailText says whom to write to of a job and about what, "" for nobody.
func MailText(s *apiv1.JobSpec) string {
	if s.GetMailType() == "" {
		return ""
	}
	return s.GetMailType() + " to " + cmp.Or(s.GetMailUser(), "its owner")
}

// IdleText says for how long its GPUs may stand idle, "" when it asked for none.
func IdleText(s *apiv1.JobSpec) string {
	if s.GetIdleOk() == nil {
		return ""
	}
	return "for " + units.FormatDuration(s.GetIdleOk().AsDuration())
}

// tellingFields are whom to tell of a job, and what it need not be told of.
func tellingFields() []Field {
	return []Field{
		{"mail-type", "", kindText, "write to you about `EVENTS`: NONE, ALL or some of BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, TIME_LIMIT, TIME_LIMIT_90, _80, _50 and ARRAY_TASKS", func(r *Request, v string) (err error) {
			r.Spec.Mail.Events, err = cluster.ParseMailEvents(v)
			return err
		}},
		{"mail-user", "", kindText, "`ADDRESS` to write to in place of yours, or several with commas between them", func(r *Request, v string) error {
			r.Spec.Mail.To = v
			return r.Spec.Mail.Check()
		}},
		{"retry", "", kindAmount, "run again up to `NUMBER` times when it fails", Whole("times", cluster.MaxRetries, func(r *Request) *int64 { return &r.retries })},
		{"retry-on", "", kindText, "after what --retry runs it again: a `LIST` of exit codes, such as 75 or 64-78, and of FAILED, NODE_FAIL, OUT_OF_MEMORY and TIMEOUT (default \"FAILED,NODE_FAIL\")", func(r *Request, v string) error {
			r.Spec.Retry.On = v
			_, err := cluster.ParseRetryOn(v)
			return err
		}},
		{"metric", "", kindText, "the `NAME` of a number that it says in BERTH_PROGRESS, such as loss, or accuracy:max where more is better: shown and drawn by berth show", func(r *Request, v string) (err error) {
			if r.Spec.Study.Searches() {
				return errors.New("the study in the spec file has its own")
			}
			r.Spec.Study, err = study.ParseMetric(v)
			return err
		}},
		{"no-resize", "", KindTruth, "keep what it holds of GPUs at what it is granted, whatever it uses and its partition says", truth(func(r *Request) *bool { return &r.Spec.NoResize })},
		{"idle-ok", "", kindAmount, "its GPUs may stand idle for `TIME` on end, as far as the partition allows, before its idle policy counts", func(r *Request, v string) (err error) {
			r.Spec.IdleOK, err = units.ParseDuration(v)
			return err
		}},
	}
}
