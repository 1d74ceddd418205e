package lead

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// day is a service that is asked through a proxy as much as the time of day says.
type day struct {
	*town
	c    service.Counted
	rate func(time.Duration) int // requests a second, by the time of day
	stop func()
}

// lead has the services led from now on by one who knows only what the log has.
func (d *day) lead() {
	if d.stop != nil {
		d.stop()
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.l.services(ctx) }()
	d.stop = func() { cancel(); <-done }
	synctest.Wait()
}

func (d *day) clock() time.Duration {
	return time.Duration(cluster.TimeOf(time.Now())) * time.Microsecond % (24 * time.Hour)
}

// until lets time pass until a time of day.
func (d *day) until(at time.Duration) {
	for d.clock() != at {
		d.c.Requests += uint64(5 * d.rate(d.clock()))
		if d.c.Waiting = 0; d.rate(d.clock()) > 0 && len(d.ready()) == 0 {
			d.c.Waiting = 1
		}
		rs := d.f.Services()
		if !d.l.Heard(&rs[len(rs)-1], "proxy", &d.c) {
			d.t.Fatal("nobody hears the proxy")
		}
		d.live(1)
		time.Sleep(4 * time.Second)
		synctest.Wait()
	}
}

// TestAheadOfTheMorning: on the first day a service has more replicas after the load rose,
// on the second before, though another leads by then and a new revision is there; one that is
// told to do without is late each day, and so is who does not know the day.
func TestAheadOfTheMorning(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &day{town: newTown(t), rate: func(at time.Duration) int {
				if at >= 8*time.Hour && at < 18*time.Hour {
					return 40
				}
				return 8
			}}
			d.l.cfg.ServicesEvery = 5 * time.Second
			id := d.serve(1, 6, 1, func(s *service.Service) {
				s.Scale, s.NoForecast, s.Every = service.Scale{On: service.Rate, Target: 10}, off, 5*time.Second
			})
			d.lead()
			defer func() { d.stop() }()
			time.Sleep(24*time.Hour - d.clock()) // from midnight on
			d.until(8 * time.Hour)
			d.want("1_0")
			d.until(8*time.Hour + 3*time.Minute)
			if got := len(d.ready()); got != 4 {
				t.Errorf("by day %d replicas", got)
			}
			d.until(19 * time.Hour)
			d.want("1_0")
			d.lead()
			next := d.serve(1, 6, 1, func(s *service.Service) {
				s.Scale, s.NoForecast, s.Every = service.Scale{On: service.Rate, Target: 10}, off, 5*time.Second
			})
			d.until(20 * time.Hour)
			if all := d.f.Services(); len(all) != 1 || all[0].ID != next || next == id {
				t.Fatalf("services: %+v", all)
			}
			d.until(7*time.Hour + 50*time.Minute)
			d.lead()
			d.until(7*time.Hour + 58*time.Minute)
			if got := len(d.ready()); got != 1 {
				t.Errorf("two minutes before the rise %d replicas", got)
			}
			d.until(8 * time.Hour)
			v := d.l.Served(1000, "web")
			got, f := len(d.ready()), v.Told.Forecast
			if off {
				if got != 1 || f != (service.Forecast{}) || v.LoadKnown != 0 || d.f.Services()[0].Load != nil {
					t.Errorf("without a forecast %d replicas before the rise: %+v", got, v)
				}
				return
			}
			if got != 4 || f.Load < 30 || f.Load > 45 || f.At%(24*time.Hour) != 8*time.Hour || v.LoadKnown < 31*time.Hour || v.LoadKnown > 32*time.Hour || v.Told.String() != "its load asks for 1, the forecast for 4" {
				t.Errorf("before the rise %d replicas: %+v, %s", got, v, v.Told.String())
			}
			if n := len(d.since(0, func(c *logv1.Command) bool { return c.GetNoteLoads() != nil })); n > 2*32*12 {
				t.Errorf("%d entries say what there was to do", n)
			}
		})
	}
}

// TestThereBeforeTheMorning: a service that sleeps at night has its replicas before the
// first request of the second day, though another leads by then; the first day's first
// request waited.
func TestThereBeforeTheMorning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &day{town: newTown(t), rate: func(at time.Duration) int {
			if at >= 8*time.Hour && at < 18*time.Hour {
				return 36
			}
			return 0
		}}
		d.serve(1, 6, 1, func(s *service.Service) {
			s.Min, s.IdleAfter, s.Scale, s.Every = 0, 10*time.Minute, service.Scale{On: service.Rate, Target: 10}, time.Second
		})
		d.lead()
		defer func() { d.stop() }()
		time.Sleep(24*time.Hour - d.clock()) // from midnight on
		d.until(8*time.Hour + 5*time.Second)
		if d.c.Waiting == 0 {
			t.Error("no request waits on the first day")
		}
		d.until(19 * time.Hour)
		d.want()
		d.lead()
		d.until(7*time.Hour + 50*time.Minute)
		d.want()
		if v := d.l.Served(1000, "web"); v.Told.String() != "until a request comes" || v.Told.Forecast.Ahead == 0 {
			t.Errorf("ten minutes before the rise: %+v", v.Told)
		}
		d.until(8 * time.Hour)
		if got := len(d.ready()); got != 3 {
			t.Errorf("before the rise %d replicas: %+v", got, d.l.Served(1000, "web"))
		}
		d.until(9 * time.Hour)
		if got := len(d.ready()); got != 3 {
			t.Errorf("by day %d replicas", got)
		}
		d.until(19 * time.Hour)
		d.want()
	})
}
