package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Tenant is a group of users that is guaranteed a part of the cluster.
type Tenant struct {
	Name string `yaml:"name"`
	// Users are user names or numeric uids; each belongs to at most one tenant.
	Users []string `yaml:"users"`
	// Cells are TYPE:GPUS=COUNT: groups of GPUs of one node, or of whole nodes.
	Cells []string `yaml:"cells"`
}

var tenantsType = reflect.TypeFor[[]Tenant]()

// parseTenant reads the one-line form, NAME=USER+USER/TYPE:GPUS=COUNT+…
func parseTenant(s string) (Tenant, error) {
	name, rest, ok := strings.Cut(s, "=")
	users, list, _ := strings.Cut(rest, "/")
	if !ok || name == "" {
		return Tenant{}, fmt.Errorf("has %.80q, want name=user+user/TYPE:GPUS=COUNT+TYPE:GPUS=COUNT, such as vision=alice+bob/A100-SXM4-80GB:8=2", s)
	}
	t := Tenant{Name: name}
	if users != "" {
		t.Users = strings.Split(users, "+")
	}
	if list != "" {
		t.Cells = strings.Split(list, "+")
	}
	return t, nil
}

// String returns the form that parseTenant reads.
func (t Tenant) String() string {
	return t.Name + "=" + strings.Join(t.Users, "+") + "/" + strings.Join(t.Cells, "+")
}

// Tenancy returns what the policies need of the tenants, nil if there are
// none. The error is about the first invalid one; Validate reports all.
func (s *Scheduling) Tenancy() (*policies.Tenancy, error) {
	if len(s.Tenants) == 0 {
		return nil, nil
	}
	out := &policies.Tenancy{Users: map[string]string{}}
	for i, t := range s.Tenants {
		x := cells.Tenant{Name: t.Name}
		for _, text := range t.Cells {
			c, err := cells.ParseCell(text)
			if err != nil {
				return nil, fmt.Errorf("scheduling.tenants[%d].cells: %w", i, err)
			}
			x.Cells = append(x.Cells, c)
		}
		out.Tenants = append(out.Tenants, x)
		for _, u := range t.Users {
			out.Users[u] = t.Name
		}
	}
	return out, nil
}

// tenants checks all that can be checked without knowing the nodes.
func (p *Problems) tenants(key string, ts []Tenant) {
	names, users := map[string]int{}, map[string]string{}
	for i, t := range ts {
		at := indexed(key, i)
		if err := cluster.CheckPartitionName(t.Name); err != nil {
			p.addf(at+".name", "%s", strings.Replace(err.Error(), "partition", "tenant", 1))
		}
		if first, twice := names[t.Name]; twice {
			p.addf(at+".name", "%.80q is also the name of tenants[%d]; each tenant needs its own", t.Name, first)
		} else {
			names[t.Name] = i
		}
		if len(t.Users) == 0 {
			p.addf(at+".users", "lists no users; want user names or numeric uids")
		}
		for k, u := range t.Users {
			if u == "" || len(u) > 64 || strings.ContainsFunc(u, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) || r == ':' }) {
				p.addf(indexed(at+".users", k), "is %.80q, want a user name or a numeric uid", u)
			}
			if other, twice := users[u]; twice {
				p.addf(indexed(at+".users", k), "%.80q already belongs to tenant %.80q; a user has one tenant", u, other)
				continue
			}
			users[u] = t.Name
		}
		seen := map[string]struct{}{}
		for k, text := range t.Cells {
			c, err := cells.ParseCell(text)
			if err != nil {
				p.addf(indexed(at+".cells", k), "%v", err)
				continue
			}
			level := fmt.Sprintf("%s:%d", c.GPUType, c.GPUs)
			if _, twice := seen[level]; twice {
				p.addf(indexed(at+".cells", k), "is %.80q, but cells of %s are already listed; give one count", text, level)
			}
			seen[level] = struct{}{}
		}
	}
}
