package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestReservations runs the day of an operator who takes a node down: a job that
// would run into the maintenance waits and says so, a shorter one runs, and one
// of a reservation runs inside of it.
func TestReservations(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xT4@fast+nvlink,1xcpu")
	start := time.Now().Add(2 * time.Hour).Format("2006-01-02T15:04:05")
	c.run("reservation", "add", "maint", "--nodes", "n1", "--start", start, "--duration", "1h", "--maint")
	long := c.submit("--gpus", "1", "--time", "3h", "--constraint", "nvlink", "--", "true")
	short := c.submit("--gpus", "1", "--time", "10m", "-C", "fast&nvlink", "--", "true")
	c.await(short, "COMPLETED")
	c.eventually("the long job says what it waits for", func() bool {
		why := c.run("why", id(long))
		return strings.Contains(why, "maintenance maint begins at")
	})
	if text := c.run("squeue", "-h", "-o", "%i %T %r"); !strings.Contains(text, id(long)+" PENDING Reservation") {
		t.Errorf("squeue says %q", text)
	}
	gang := c.submit("-N", "2", "--time", "3h", "--", "true")
	c.eventually("a gang of both nodes says when they are free", func() bool {
		why := c.run("why", id(gang))
		return strings.Contains(why, "maint") && strings.Contains(why, "Expected start: ")
	})
	c.run("scontrol", "update", "jobid="+id(gang), "timelimit=30")
	c.await(gang, "COMPLETED")
	// Lowering its limit lets it go at once.
	c.run("scontrol", "update", "jobid="+id(long), "timelimit=30")
	c.await(long, "COMPLETED")

	c.run("reservation", "add", "course", "--gpus", "1", "--start", "now", "--duration", "1h", "--users", "root")
	inside := c.submit("--gpus", "1", "--time", "10m", "--reservation", "course", "--", "sleep", "600")
	c.await(inside, "RUNNING")
	outside := c.submit("--gpus", "2", "--time", "10m", "--", "true")
	c.eventually("who wants the reserved card, too, is told", func() bool {
		return strings.Contains(c.run("why", id(outside)), "reservation course holds it")
	})
	if text := c.run("scontrol", "-o", "show", "reservation", "course"); !strings.Contains(text, "ReservationName=course ") || !strings.Contains(text, "State=ACTIVE") {
		t.Errorf("scontrol shows %q", text)
	}
	if r := c.runAs(0, "submit", "-C", "nosuch", "--", "true"); r.code == 0 || !strings.Contains(r.stderr, "no node has the features nosuch; there are fast, nvlink") {
		t.Errorf("a feature that no node has: %+v", r)
	}
	c.run("cancel", id(inside))
	c.run("cancel", id(outside))
	c.await(inside, "CANCELLED")
	c.run("scontrol", "delete", "reservationname=course")

	c.run("reservation", "set", "maint", "--start", "now", "--duration", "1h")
	if text := c.run("sinfo", "-h", "-N", "-n", "n1", "-o", "%N %t"); strings.TrimSpace(text) != "n1 maint" {
		t.Errorf("sinfo says %q", text)
	}
}

func id(n uint64) string { return strconv.FormatUint(n, 10) }
