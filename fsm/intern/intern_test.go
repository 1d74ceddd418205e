package intern

import (
	"fmt"
	"reflect"
	"testing"
	"unsafe"

	"github.com/berth-scheduler/berth/cluster"
)

// TestTextsIsBounded: however many different texts and users come, it
// holds no more than its bounds, and what it gives is what it was asked for.
func TestTextsIsBounded(t *testing.T) {
	t.Parallel()
	c := New()
	for i := range maxTexts + 100 {
		v := fmt.Sprintf("text-%d", i)
		got := v
		if Share(c, &got); got != v {
			t.Fatalf("%q became %q", v, got)
		}
		if len(c.texts) > maxTexts {
			t.Fatalf("%d texts are held", len(c.texts))
		}
	}
	for uid := range cluster.UID(maxOwners + 100) {
		v := []string{"python3", textOf(uid)}
		if shareLines(c.args, uid, &v); v[1] != textOf(uid) {
			t.Fatalf("user %d got %q", uid, v)
		}
		if len(c.args) > maxOwners {
			t.Fatalf("the lines of %d users are held", len(c.args))
		}
	}
}

func textOf(uid cluster.UID) string { return fmt.Sprint(uint32(uid)) }

// TestTextsShares: equal texts are one, long ones are left alone, and what
// one user's job has in common with the last is held once.
func TestTextsShares(t *testing.T) {
	t.Parallel()
	c := New()
	fresh := func(n int) string { return string(make([]byte, n)) }
	for _, tc := range []struct {
		name   string
		size   int
		shared bool
	}{{"short", 10, true}, {"at the bound", maxShared, true}, {"long", maxShared + 1, false}} {
		a, b := fresh(tc.size), fresh(tc.size)
		Share(c, &a)
		Share(c, &b)
		if got := unsafe.StringData(a) == unsafe.StringData(b); got != tc.shared {
			t.Errorf("%s: shared %t", tc.name, got)
		}
	}
	first, same, other, theirs := []string{"a", "b"}, []string{"a", "b"}, []string{"a", "c"}, []string{"a", "b"}
	shareLines(c.envs, 1, &first)
	shareLines(c.envs, 1, &same)
	shareLines(c.envs, 1, &other)
	shareLines(c.envs, 2, &theirs)
	if &first[0] != &same[0] || other[1] != "c" || &theirs[0] == &first[0] {
		t.Error("lines are not shared as they should be")
	}
}

// TestAlikeLooksAtEverything: two empty specs are alike, and none are of which one has
// anything that the other has not, however deep it lies.
func TestAlikeLooksAtEverything(t *testing.T) {
	t.Parallel()
	if !alike(&cluster.Spec{}, &cluster.Spec{}) {
		t.Error("two that say nothing are not alike")
	}
	n := 0
	var each func(v reflect.Value, path string, s *cluster.Spec)
	each = func(v reflect.Value, path string, s *cluster.Spec) {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				each(v.Field(i), path+"."+v.Type().Field(i).Name, s)
			}
			return
		}
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.String:
			v.SetString("x")
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Interface:
			v.Set(reflect.ValueOf(cluster.HoldBulk(nil, nil)))
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			v.SetInt(1)
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			v.SetUint(1)
		default:
			t.Fatalf("%s is of %s: alike is to look at it, and this test to set it", path, v.Type())
		}
		if alike(s, &cluster.Spec{}) || alike(&cluster.Spec{}, s) {
			t.Errorf("%s makes no difference", path)
		}
		n++
		v.Set(was)
	}
	s := &cluster.Spec{}
	each(reflect.ValueOf(s).Elem(), "Spec", s)
	if n < 60 {
		t.Errorf("%d fields were looked at", n)
	}
}

// TestWholeSpecsAreShared: jobs of one user that ask for the same have one spec and one list of
// estimates; others have their own, and so has the next user.
func TestWholeSpecsAreShared(t *testing.T) {
	t.Parallel()
	c := New()
	job := func(uid cluster.UID, name string, util int64) *cluster.Job {
		j := &cluster.Job{Owner: cluster.Owner{UID: uid}, Spec: &cluster.Spec{Name: name, Env: []string{"A=" + name}, Script: []byte("x")}, Estimates: []cluster.Estimate{{GPUType: "T4", Milli: util}}}
		c.Job(j)
		return j
	}
	first, same, other, after, theirs := job(1, "a", 1), job(1, "a", 1), job(1, "b", 2), job(1, "a", 2), job(2, "a", 2)
	if first.Spec != same.Spec || &first.Estimates[0] != &same.Estimates[0] {
		t.Error("two equal jobs have two specs")
	}
	if other.Spec == first.Spec || other.Spec.Name != "b" || after.Spec == other.Spec || after.Spec.Name != "a" || theirs.Spec == after.Spec || theirs.Spec.Name != "a" {
		t.Error("jobs that differ have one spec")
	}
	if &other.Estimates[0] != &after.Estimates[0] || other.Estimates[0].Milli != 2 || first.Estimates[0].Milli != 1 || &theirs.Estimates[0] == &after.Estimates[0] {
		t.Error("estimates are not those of their jobs")
	}
	for uid := range cluster.UID(maxOwners + 100) {
		if job(uid, "a", 1); len(c.jobs) > maxOwners {
			t.Fatalf("the jobs of %d users are held", len(c.jobs))
		}
	}
}
