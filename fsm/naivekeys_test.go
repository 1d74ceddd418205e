package fsm

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// slip is a join token as its maker wrote it down.
type slip struct {
	secret, role, name string
	until              cluster.Time
}

// porter lets daemons in by a list of slips and a list of those who stay outside. Used
// slips are torn, and nothing else is ever struck off: that one is too old is seen when
// it is shown.
type porter struct {
	t       *rapid.T
	m       *machine
	slips   []slip
	outside map[[2]string]cluster.Time // by role and name, since when
	nodes   map[cluster.NodeID]bool
}

func (p *porter) role() string {
	return rapid.SampledFrom([]string{agentRole, agentRole, "gate"}).Draw(p.t, "role")
}

func (p *porter) name() string {
	return rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(p.t, "name")
}

func (p *porter) secret() string {
	return rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(p.t, "secret")
}

// good is the slip with a secret that is good at a time, for whomever.
func (p *porter) good(secret string, now cluster.Time) *slip {
	for i := range p.slips {
		if s := &p.slips[i]; s.secret == secret && now <= s.until {
			return s
		}
	}
	return nil
}

// enters is the slip by which somebody of a name gets in at a time.
func (p *porter) enters(secret, name string, now cluster.Time) *slip {
	s := p.good(secret, now)
	if s == nil || s.name != name {
		return nil
	}
	if _, denied := p.outside[[2]string{s.role, s.name}]; denied {
		return nil
	}
	return s
}

// says applies a command, which is to be answered with a code and, unless that is
// done, to change nothing.
func (p *porter) says(what string, cmd *logv1.Command, want cluster.Code) Result {
	hash := entitiesHash(p.m.f)
	r := p.m.do(cmd)[0]
	got := done
	if r.Err != nil {
		got = r.Err.Code
	}
	if got != want {
		p.t.Fatalf("%s: %v, by the lists code %d; slips %+v, outside %v", what, r.Err, want, p.slips, p.outside)
	}
	if want != done && hash != entitiesHash(p.m.f) {
		p.t.Fatalf("%s was refused and changed the hash", what)
	}
	return r
}

func (p *porter) make() {
	secret, role, name := p.secret(), p.role(), p.name()
	now := p.m.now.Add(time.Second)
	until := now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 5, 60}).Draw(p.t, "seconds")) * time.Second)
	want := done
	if _, denied := p.outside[[2]string{role, name}]; denied {
		want = cluster.CodeDenied
	} else if p.good(secret, now) != nil {
		want = cluster.CodeConflict
	}
	p.says("a token is made", tokenCmd(secret, role, name, until), want)
	if want == done {
		p.slips = append(p.slips, slip{secret, role, name, until})
	}
}

func (p *porter) use() {
	secret, name := p.secret(), p.name()
	s := p.enters(secret, name, p.m.now.Add(time.Second))
	if s == nil {
		p.says("a token that is not good", useCmd(secret, name), cluster.CodeUnauthenticated)
		return
	}
	r := p.says("a good token", useCmd(secret, name), done)
	if r.Token == nil || *r.Token != (command.TokenInfo{Role: s.role, ID: s.name}) {
		p.t.Fatalf("%s comes in as %+v, its slip is for %s %s", name, r.Token, s.role, s.name)
	}
	p.slips = slices.DeleteFunc(p.slips, func(o slip) bool { return o == *s })
}

func (p *porter) deny() {
	who := [2]string{p.role(), p.name()}
	p.says("a denial", denyCmd(who[0], who[1]), done)
	if _, denied := p.outside[who]; !denied {
		p.outside[who] = p.m.now
	}
}

func (p *porter) allow() {
	who := [2]string{p.role(), p.name()}
	c := denyCmd(who[0], who[1])
	c.GetDenyIdentity().Allow = true
	want := done
	if _, denied := p.outside[who]; !denied {
		want = cluster.CodeNotFound
	}
	p.says("an allowance", c, want)
	delete(p.outside, who)
}

// node is one that registers, or is removed: whoever was is outside.
func (p *porter) node() {
	id := cluster.NodeID(p.name())
	agent := [2]string{agentRole, string(id)}
	_, denied := p.outside[agent]
	switch remove := rapid.Bool().Draw(p.t, "remove"); {
	case remove && p.nodes[id]:
		p.says("a removal", removeCmd(id), done)
		if delete(p.nodes, id); !denied {
			p.outside[agent] = p.m.now
		}
	case remove:
		p.says("a removal of none", removeCmd(id), cluster.CodeNotFound)
	case denied:
		p.says("a node from outside", registerCmd(node(id, "boot1", 1)), cluster.CodeDenied)
	default:
		p.says("a node", registerCmd(node(id, "boot1", 1)), done)
		p.nodes[id] = true
	}
}

// check holds the lists against the machine: who is outside and since when, which
// token fits whom, and that no more are held than could be good.
func (p *porter) check() {
	all := p.m.f.AllDenied()
	for _, d := range all {
		if since, denied := p.outside[[2]string{d.Role, d.ID}]; !denied || since != d.At {
			p.t.Fatalf("%s %s is denied since %d, by the list %d (%t)", d.Role, d.ID, d.At, since, denied)
		}
	}
	if len(all) != len(p.outside) {
		p.t.Fatalf("%v are denied, by the list %v", all, p.outside)
	}
	open := 0
	for _, secret := range []string{"s1", "s2", "s3"} {
		sum := sha256.Sum256([]byte(secret))
		for _, later := range []time.Duration{0, 2 * time.Second, time.Minute} {
			for _, name := range []string{"n1", "n2", "n3"} {
				now := p.m.now.Add(later)
				if got, want := p.m.f.TokenFits(sum[:], name, now), p.enters(secret, name, now) != nil; got != want {
					p.t.Fatalf("%s fits %s in %s: %t, by its slip %t", secret, name, later, got, want)
				}
			}
		}
		if p.good(secret, p.m.now) != nil {
			open++
		}
	}
	if held := p.m.f.st.keyring.Tokens(); held < open || held > 3 {
		p.t.Fatalf("%d tokens are held, %d are good", held, open)
	}
}

// TestWhoGetsIn: whatever tokens are made, used, grow old or are made again, and whoever
// is denied, allowed or removed, in whatever order: they get in whom a porter with two
// lists lets in, once for each slip.
func TestWhoGetsIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		told := 0
		p := &porter{t: t, m: newMachine(t), outside: map[[2]string]cluster.Time{}, nodes: map[cluster.NodeID]bool{}}
		p.m.f.opts.OnDenied = func() { told++ }
		p.m.must(initCmd("c1", 100))
		steps := []func(){p.make, p.make, p.make, p.use, p.use, p.deny, p.allow, p.node}
		for i := range rapid.IntRange(5, 40).Draw(t, "steps") {
			p.m.now = p.m.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 4, 30}).Draw(t, "pause")) * time.Second)
			before, was := told, len(p.outside)
			steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")]()
			p.check()
			if len(p.outside) > was && told == before {
				t.Fatalf("step %d: one more is denied, and who closes connections was not told", i)
			}
		}
		again := *p
		again.m.f = restored(t, snapshotOf(t, p.m.f))
		again.check()
		p.use()
		p.check()
	})
}
