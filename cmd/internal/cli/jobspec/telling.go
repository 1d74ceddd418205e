package jobspec

import (
	"cmp"
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// MailText says whom to mail about a job and about what, "" for nobody.
func MailText(s *apiv1.JobSpec) string {
	if s.GetMailType() == "" {
		return ""
	}
	return s.GetMailType() + " to " + cmp.Or(s.GetMailUser(), "its owner")
}

// IdleText says for how long its GPUs may be idle, "" when it set no limit.
func IdleText(s *apiv1.JobSpec) string {
	if s.GetIdleOk() == nil {
		return ""
	}
	return "for " + units.FormatDuration(s.GetIdleOk().AsDuration())
}

// tellingFields returns the fields for mail, retries, the metric and idle GPUs.
func tellingFields() []Field {
	return []Field{
		{"mail-type", "", kindText, "send mail on `EVENTS`: NONE, ALL or some of BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, TIME_LIMIT, TIME_LIMIT_90, _80, _50 and ARRAY_TASKS", func(r *Request, v string) (err error) {
			r.Spec.Mail.Events, err = cluster.ParseMailEvents(v)
			return err
		}},
		{"mail-user", "", kindText, "mail `ADDRESS` instead of yours, or several separated by commas", func(r *Request, v string) error {
			r.Spec.Mail.To = v
			return r.Spec.Mail.Check()
		}},
		{"retry", "", kindAmount, "retry a failed job up to `NUMBER` times", Whole("times", cluster.MaxRetries, func(r *Request) *int64 { return &r.retries })},
		{"retry-on", "", kindText, "what --retry applies to: a `LIST` of exit codes, such as 75 or 64-78, and of FAILED, NODE_FAIL, OUT_OF_MEMORY and TIMEOUT (default \"FAILED,NODE_FAIL\")", func(r *Request, v string) error {
			r.Spec.Retry.On = v
			_, err := cluster.ParseRetryOn(v)
			return err
		}},
		{"metric", "", kindText, "`NAME` of a value that the job reports in BERTH_PROGRESS, such as loss, or accuracy:max if higher is better; berth show prints and plots it", func(r *Request, v string) (err error) {
			if r.Spec.Study.Searches() {
				return errors.New("the study in the spec file has its own")
			}
			r.Spec.Study, err = study.ParseMetric(v)
			return err
		}},
		{"no-resize", "", KindTruth, "keep the job's GPU shares as granted, whatever it uses and the partition says", truth(func(r *Request) *bool { return &r.Spec.NoResize })},
		{"idle-ok", "", kindAmount, "let the job's GPUs idle for `TIME` at a stretch, within the partition's limit, before the idle policy applies", func(r *Request, v string) (err error) {
			r.Spec.IdleOK, err = units.ParseDuration(v)
			return err
		}},
	}
}
