// Package command defines what applies to all log commands: which of them, and
// which of their fields, may be proposed from which entry version on. A coordinator
// that does not know them would store something different from those that do.
package command

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// Needs returns the lowest entry version that may hold cmd, and the part of it that
// requires that version, as "submit_job.jobs.spec.array"; for version 1 that is "".
func Needs(cmd *logv1.Command) (version uint32, part string) {
	version = 1
	root().walk(cmd.ProtoReflect(), "", func(v uint32, path string) {
		if v > version {
			version, part = v, path
		}
	})
	return version, part
}

// of is a version by message and field, or by enumeration and value; early ones may
// be in entries of any version.
type of struct {
	version uint32
	early   bool
}

// known returns the table keyed by names.
func known() map[string]of {
	m := map[string]of{}
	for _, r := range table {
		for _, f := range strings.Fields(r.fields) {
			name, early := strings.CutSuffix(f, "?")
			m[r.message+"."+name] = of{r.version, early}
		}
	}
	return m
}

// node describes what to examine in messages of one type: the fields added after
// version 1, and those that contain such fields.
type node struct {
	fields []field
}

type field struct {
	fd      protoreflect.FieldDescriptor
	version uint32
	values  map[protoreflect.EnumNumber]uint32 // of an enumeration
	in      *node
}

var root = sync.OnceValue(func() *node {
	return compile(new(logv1.Command).ProtoReflect().Descriptor(), known())
})

// compile returns the node of a message, nil if there is nothing to examine. No
// command message contains its own type.
func compile(md protoreflect.MessageDescriptor, versions map[string]of) *node {
	n := &node{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		f := field{fd: fd, version: 1}
		if v := versions[string(md.Name())+"."+string(fd.Name())]; v.early {
			continue
		} else if v.version > 1 {
			f.version = v.version
		}
		if ed := fd.Enum(); ed != nil {
			f.values = map[protoreflect.EnumNumber]uint32{}
			for k := range ed.Values().Len() {
				ev := ed.Values().Get(k)
				f.values[ev.Number()] = versions[string(ed.Name())+"."+string(ev.Name())].version
			}
		}
		if m := fd.Message(); m != nil {
			f.in = compile(m, versions)
		}
		if f.version > 1 || f.values != nil || f.in != nil {
			n.fields = append(n.fields, f)
		}
	}
	if len(n.fields) == 0 {
		return nil
	}
	return n
}

// walk calls saw for each versioned part of a message. Paths are built only for
// what is found.
func (n *node) walk(m protoreflect.Message, path string, saw func(version uint32, path string)) {
	for i := range n.fields {
		f := &n.fields[i]
		if !m.Has(f.fd) {
			continue
		}
		v := m.Get(f.fd)
		at := path + string(f.fd.Name())
		if f.version > 1 {
			saw(f.version, at)
		}
		switch {
		case f.values != nil:
			saw(f.values[v.Enum()], at)
		case f.in == nil:
		case f.fd.IsList():
			for l, k := v.List(), 0; k < l.Len(); k++ {
				f.in.walk(l.Get(k).Message(), at+".", saw)
			}
		default:
			f.in.walk(v.Message(), at+".", saw)
		}
	}
}
