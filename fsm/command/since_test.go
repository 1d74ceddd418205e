package command

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// each calls f with every field that a command can hold, and the path to it, and
// with every value of an enumeration.
func each(md protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor, f func(path []protoreflect.FieldDescriptor, value protoreflect.EnumValueDescriptor)) {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		here := append(path[:len(path):len(path)], fd)
		f(here, nil)
		if fd.Message() != nil {
			each(fd.Message(), here, f)
		}
		if fd.Enum() != nil {
			for k := range fd.Enum().Values().Len() {
				f(here, fd.Enum().Values().Get(k))
			}
		}
	}
}

func command() protoreflect.MessageDescriptor { return new(logv1.Command).ProtoReflect().Descriptor() }

// TestEveryFieldHasAVersion: whatever a command of the log can hold stands in the
// table, once, and nothing else does.
func TestEveryFieldHasAVersion(t *testing.T) {
	t.Parallel()
	versions, used := known(), map[string]bool{}
	each(command(), nil, func(path []protoreflect.FieldDescriptor, value protoreflect.EnumValueDescriptor) {
		fd := path[len(path)-1]
		name := string(fd.Parent().Name()) + "." + string(fd.Name())
		if value != nil {
			name = string(value.Parent().Name()) + "." + string(value.Name())
		}
		if versions[name].version == 0 && !used[name] {
			t.Errorf("%s has no version: add it to the table with that of the entries which may hold it", name)
		}
		used[name] = true
	})
	seen := map[string]bool{}
	for _, r := range table {
		for _, f := range strings.Fields(r.fields) {
			name := r.message + "." + strings.TrimSuffix(f, "?")
			if seen[name] || !used[name] {
				t.Errorf("%s stands in the table twice, or is held by no command", name)
			}
			seen[name] = true
		}
	}
}

// TestNeeds: a command needs the highest version of what it holds, wherever that
// is; what entries of before pass over needs none.
func TestNeeds(t *testing.T) {
	t.Parallel()
	versions := known()
	each(command(), nil, func(path []protoreflect.FieldDescriptor, value protoreflect.EnumValueDescriptor) {
		cmd := &logv1.Command{}
		m, want, where := cmd.ProtoReflect(), uint32(1), ""
		for i, fd := range path {
			at := versions[string(fd.Parent().Name())+"."+string(fd.Name())]
			if at.early {
				return // with all that is in it
			}
			want, where = max(want, at.version), strings.TrimPrefix(where+"."+string(fd.Name()), ".")
			if i == len(path)-1 && value != nil {
				m.Set(fd, protoreflect.ValueOfEnum(value.Number()))
				want = max(want, versions[string(value.Parent().Name())+"."+string(value.Name())].version)
				if value.Number() == 0 {
					return // is as if it were not there
				}
			} else {
				m = fill(m, fd)
			}
		}
		got, part := Needs(cmd)
		if got != want {
			t.Errorf("%s: needs version %d, want %d", where, got, want)
		}
		if got > 1 && !strings.HasPrefix(where, part) {
			t.Errorf("%s: %q is said to need it", where, part)
		}
	})
}

// fill sets a field to something that is not its zero, and returns the message in it.
func fill(m protoreflect.Message, fd protoreflect.FieldDescriptor) protoreflect.Message {
	switch {
	case fd.IsList() && fd.Message() != nil:
		return m.Mutable(fd).List().AppendMutable().Message()
	case fd.Message() != nil:
		return m.Mutable(fd).Message()
	case fd.IsList():
		m.Mutable(fd).List().Append(one(fd))
	default:
		m.Set(fd, one(fd))
	}
	return m
}

func one(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("x")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{1})
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(1)
	}
	return protoreflect.ValueOfInt64(1)
}

// TestNeedsOfEarlyFields: what every replica passes over needs no version.
func TestNeedsOfEarlyFields(t *testing.T) {
	t.Parallel()
	for _, cmd := range []*logv1.Command{
		{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n1", By: 7}}},
		{Kind: &logv1.Command_ReportAttempt{ReportAttempt: &logv1.ReportAttempt{Usage: &logv1.Usage{Profile: &logv1.Profile{GapMs: 3}}}}},
	} {
		if v, part := Needs(cmd); v != 1 {
			t.Errorf("%v needs %d for %s", cmd, v, part)
		}
	}
}

// TestArraysNeedTheirVersion: an older replica would store one job in their place.
func TestArraysNeedTheirVersion(t *testing.T) {
	t.Parallel()
	cmd := &logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{Jobs: []*logv1.NewJob{{}, {Spec: &logv1.Spec{Array: &logv1.Array{Runs: []uint32{0, 9, 1}}}}}}}}
	if v, part := Needs(cmd); v != 9 || part != "submit_job.jobs.spec.array" {
		t.Errorf("needs version %d for %q", v, part)
	}
}

func BenchmarkNeeds(b *testing.B) {
	spec := &logv1.Spec{Name: "train", Command: [][]byte{[]byte("true")}, Dir: []byte("/"), Partition: "gpu", Account: "bio", Nodes: 1, Tasks: 1, Script: []byte("x")}
	c := &logv1.SubmitJob{}
	for range 100 {
		c.Jobs = append(c.Jobs, &logv1.NewJob{Spec: spec, Estimates: []*logv1.Estimate{{}, {}}})
	}
	cmd := &logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: c}}
	for b.Loop() {
		Needs(cmd)
	}
}
