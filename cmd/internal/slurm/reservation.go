package slurm

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// Reservation is a reservation in Slurm's terms.
type Reservation struct {
	Name            string
	Start, End      time.Time
	Nodes           string
	NodeCount, GPUs int
	Cores           int64
	Features        string
	Flags           []string
	Users, Accounts []string
	Active          bool
}

func (x *Reservation) state() string {
	if x.Active {
		return "ACTIVE"
	}
	return "INACTIVE"
}

// Reservation prints a reservation as scontrol show reservation does.
func (r *Record) Reservation(w io.Writer, x *Reservation) error {
	tres := "cpu=" + strconv.FormatInt(x.Cores, 10)
	if x.GPUs > 0 {
		tres += ",gres/gpu=" + strconv.Itoa(x.GPUs)
	}
	lines := []string{
		"ReservationName=" + x.Name + " StartTime=" + text.Stamp(x.Start, "") + " EndTime=" + text.Stamp(x.End, "") + " Duration=" + text.Clock(x.End.Sub(x.Start)),
		"Nodes=" + x.Nodes + " NodeCnt=" + strconv.Itoa(x.NodeCount) + " CoreCnt=" + strconv.FormatInt(x.Cores, 10) + " Features=" + orNull(x.Features) + " PartitionName=(null) Flags=" + strings.Join(x.Flags, ","),
		"TRES=" + tres,
		"Users=" + orNull(strings.Join(x.Users, ",")) + " Groups=(null) Accounts=" + orNull(strings.Join(x.Accounts, ",")) + " Licenses=(null) State=" + x.state() + " BurstBuffer=(null) Watts=n/a",
		"MaxStartDelay=(null)",
	}
	if r.OneLine {
		_, err := io.WriteString(w, strings.Join(lines, " ")+"\n")
		return err
	}
	return r.write(w, lines, "\n\n")
}
