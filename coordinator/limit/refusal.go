package limit

import "time"

// Refusal is why a call was refused, and when to retry.
type Refusal struct {
	Msg   string
	After time.Duration
}

// Error implements error.
func (r *Refusal) Error() string { return r.Msg }

type reason struct{ metric, msg string }

var (
	tooFast          = reason{"rate", "you ask too often (limits.requests_per_second); ask again in a moment"}
	tooMuch          = reason{"bandwidth", "you send too much (limits.request_kib_per_second); ask again in a moment"}
	tooMuchWork      = reason{"work", "your lists, reports, predictions and watches took too much of the coordinator's time (limits.read_ms_per_second); ask again in a moment"}
	tooManyCalls     = reason{"calls", "too many requests of yours are under way (limits.requests_per_user); ask again in a moment"}
	tooManyExpensive = reason{"expensive", "too many lists, reports or predictions are under way (limits.reads_per_user, limits.reads_total); ask again in a moment"}
	tooManyStreams   = reason{"streams", "too many jobs are watched by you at once; end some first"}
	tooManyArriving  = reason{"arriving", "too many requests are being sent at once; ask again in a moment"}
	tooManyBytes     = reason{"bytes", "the requests under way are too large together; ask again in a moment"}
	tooManyUnread    = reason{"unread", "too much lies here that you asked for and have not read; read it, or end those who asked"}
	tooManyUsers     = reason{"users", "too many users ask at once; ask again in a moment"}
)

var reasons = []reason{tooFast, tooMuch, tooMuchWork, tooManyCalls, tooManyExpensive, tooManyStreams, tooManyArriving, tooManyBytes, tooManyUnread, tooManyUsers}

func (t *Table) refuse(why reason, after time.Duration) *Refusal {
	t.refused.WithLabelValues(why.metric).Inc()
	return &Refusal{Msg: why.msg, After: after}
}
