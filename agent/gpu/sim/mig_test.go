package sim

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// TestCut: a GPU in MIG mode begins as one instance; what it is cut into outlives the agent,
// and a cut that cannot be changes nothing.
func TestCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "A100-SXM4-80GB", Count: 1, MIG: true})
		again := func() {
			t.Helper()
			n.down()
			n.ln = &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
			var err error
			if n.prov, err = newProvider(Config{Node: "n1", Specs: n.specs, Socket: filepath.Join(dir, "cards")}, n.ln, func(net.Conn) (peer, error) { return peer{pid: 42, uid: n.uid}, nil }); err != nil {
				t.Fatal(err)
			}
		}
		again()
		defer func() { n.down() }()
		card := func() gpu.Card {
			cards, err := n.prov.Inventory(t.Context())
			if err != nil || len(cards) != 1 {
				t.Fatal(cards, err)
			}
			return cards[0]
		}
		shown := func() string {
			at := map[int]string{}
			for _, in := range card().Instances {
				at[in.Start] = in.Profile
			}
			return fmt.Sprint(at)
		}
		byProfile := func(profile string) string {
			for _, in := range card().Instances {
				if in.Profile == profile {
					return in.UUID
				}
			}
			t.Fatal("no instance of ", profile)
			return ""
		}
		cut := func(drop []string, make ...gpu.Piece) error {
			return n.prov.Cut(t.Context(), gpu.Cut{UUID: card().UUID, Drop: drop, Make: make})
		}
		if got := shown(); got != "map[0:7g.80gb]" {
			t.Fatal("begins as", got)
		}
		if err := cut([]string{byProfile("7g.80gb")}, gpu.Piece{Profile: "3g.40gb", Start: 4}, gpu.Piece{Profile: "1g.10gb"}); err != nil {
			t.Fatal(err)
		}
		again()
		if got := shown(); got != "map[0:1g.10gb 4:3g.40gb]" {
			t.Fatal("after a restart it is", got)
		}
		small := byProfile("1g.10gb")
		if _, err := n.prov.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: small, Exclusive: true}}}); err != nil {
			t.Fatal(err)
		}
		for want, err := range map[string]error{
			"is in use by j1-a1":     cut([]string{small}),
			"would share memory":     cut(nil, gpu.Piece{Profile: "4g.40gb"}),
			"begins at slice 1":      cut(nil, gpu.Piece{Profile: "2g.20gb", Start: 1}),
			`profile "9g.90gb"`:      cut(nil, gpu.Piece{Profile: "9g.90gb"}),
			"1 of 1 instances":       cut([]string{"MIG-nobody's"}),
			"is no GPU in MIG mode":  n.prov.Cut(t.Context(), gpu.Cut{UUID: small}),
			"cut of no GPU":          n.prov.Cut(t.Context(), gpu.Cut{}),
			"17 come, at most 16":    cut(nil, make([]gpu.Piece, 17)...),
			"0 instances go and 17 ": cut(nil, make([]gpu.Piece, 17)...),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if err := cut([]string{"MIG-nobody's"}); !errors.Is(err, gpu.ErrUnknownCard) {
			t.Error(err)
		}
		if err := cut([]string{byProfile("3g.40gb")}, gpu.Piece{Profile: "2g.20gb", Start: 2}); err != nil || shown() != "map[0:1g.10gb 2:2g.20gb]" || byProfile("1g.10gb") != small {
			t.Error(err, shown())
		}
	})
	if _, err := ParseSpecs("2xT4:mig"); err == nil || !strings.Contains(err.Error(), "has no MIG mode") {
		t.Error(err)
	}
	specs, err := ParseSpecs("2xA100-SXM4-80GB:40000:mig")
	if err != nil || len(specs) != 1 || !specs[0].MIG || specs[0].MemMiB != 40000 || specs[0].String() != "2xA100-SXM4-80GB:40000:mig" {
		t.Error(specs, err)
	}
}

// TestDriverOfSimulatedCards: they report the version that they were given.
func TestDriverOfSimulatedCards(t *testing.T) {
	t.Parallel()
	const text = "2xA100-SXM4-80GB:40000:driver=580.65.06:mig"
	specs, err := ParseSpecs(text)
	if err != nil || len(specs) != 1 || specs[0].String() != text {
		t.Fatal(specs, err)
	}
	b, err := newBank("n1", specs)
	if err != nil {
		t.Fatal(err)
	}
	if d := b.cards[1].info.Driver; d != "580.65.06" {
		t.Errorf("driver %q", d)
	}
	if _, err := ParseSpecs("T4:driver=new"); err == nil || !strings.Contains(err.Error(), "no version") {
		t.Error(err)
	}
}

// TestAnInstanceIsAPartOfTheSpeed: a program that keeps less than that part of a GPU busy is as
// fast as on all of it.
func TestAnInstanceIsAPartOfTheSpeed(t *testing.T) {
	t.Parallel()
	b, err := newBank("n1", []Spec{{Type: "A100-SXM4-80GB", Count: 1, MIG: true}})
	if err != nil {
		t.Fatal(err)
	}
	c := b.cards[0]
	b.cutAnew(c, []gpu.Piece{{Profile: "1g.10gb"}, {Profile: "3g.40gb", Start: 4}})
	small, large := b.cards[1], b.cards[2]
	alone := func(c *card, util int64) float64 {
		c.load = util
		return c.speedOn(util)
	}
	if got := [4]float64{alone(small, 100), alone(small, 568), alone(large, 400), alone(c, 1000)}; got != [4]float64{1, 0.25, 1, 1} {
		t.Errorf("speeds %v", got)
	}
}
