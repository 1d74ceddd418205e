package openapi

import (
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// Meta comes first in everything that --json of Slurm 22.05 prints.
type Meta struct {
	Plugin metaPlugin `json:"plugin"`
	Slurm  metaSlurm  `json:"Slurm"`
}

type metaPlugin struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type metaSlurm struct {
	Version metaVersion `json:"version"`
	Release string      `json:"release"`
}

type metaVersion struct {
	Major int `json:"major"`
	Micro int `json:"micro"`
	Minor int `json:"minor"`
}

// The parsers whose output Slurm 22.05 prints as JSON.
const (
	parserOfQueue      = "openapi/v0.0.38"
	parserOfAccounting = "openapi/dbv0.0.38"
)

// NewMeta returns the Meta of Slurm's queue, nodes and partitions.
func NewMeta() Meta { return metaOf(parserOfQueue, "Slurm OpenAPI v0.0.38") }

// NewAcctMeta returns the Meta of Slurm's accounting.
func NewAcctMeta() Meta { return metaOf(parserOfAccounting, "Slurm OpenAPI DB v0.0.38") }

func metaOf(parser, name string) Meta {
	m := Meta{Plugin: metaPlugin{Type: parser, Name: name}, Slurm: metaSlurm{Release: slurm.Version}}
	for i, s := range strings.Split(slurm.Version, ".") {
		n, _ := strconv.Atoi(s) // Version is numeric
		*[]*int{&m.Slurm.Version.Major, &m.Slurm.Version.Minor, &m.Slurm.Version.Micro}[i] = n
	}
	return m
}

// unix returns a time as JSON has it, 0 for none.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// some returns a number that is null in JSON if it is 0.
func some(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// minutes returns a time limit in minutes, null for none.
func minutes(d time.Duration) *int64 { return some(int64(d / time.Minute)) }
