package fsm

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// oddTexts are what a name or a reason might be: none, and long ones that are cut
// within a character wherever they are cut.
var oddTexts = []string{"", "\x00\n/", strings.Repeat("é", 1<<13), "x" + strings.Repeat("é", 1<<13)}

// oddValues are what a field might hold that nobody has in mind.
func oddValues(fd protoreflect.FieldDescriptor, now protoreflect.Value) (out []protoreflect.Value) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		for _, s := range oddTexts {
			out = append(out, protoreflect.ValueOfString(s))
		}
	case protoreflect.BytesKind:
		out = append(out, protoreflect.ValueOfBytes(nil), protoreflect.ValueOfBytes(bytes.Repeat([]byte{0xff}, 1<<10)))
	case protoreflect.BoolKind:
		out = append(out, protoreflect.ValueOfBool(!now.Bool()))
	case protoreflect.Int64Kind:
		for _, n := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
			out = append(out, protoreflect.ValueOfInt64(n))
		}
	case protoreflect.Int32Kind:
		for _, n := range []int32{math.MinInt32, -1, 0, math.MaxInt32} {
			out = append(out, protoreflect.ValueOfInt32(n))
		}
	case protoreflect.Uint64Kind:
		out = append(out, protoreflect.ValueOfUint64(0), protoreflect.ValueOfUint64(math.MaxUint64))
	case protoreflect.Uint32Kind:
		out = append(out, protoreflect.ValueOfUint32(0), protoreflect.ValueOfUint32(math.MaxUint32))
	case protoreflect.EnumKind:
		out = append(out, protoreflect.ValueOfEnum(0), protoreflect.ValueOfEnum(math.MaxInt32))
	}
	return out
}

// oddly calls fn with m as it is but for one field, for each field and each odd value,
// and with each message and list in it left out.
func oddly(m protoreflect.Message, path string, fn func(path string)) {
	m.Range(func(fd protoreflect.FieldDescriptor, was protoreflect.Value) bool {
		at := path + "." + string(fd.Name())
		switch {
		case fd.IsMap():
			return true
		case fd.IsList() && fd.Message() != nil:
			for i := range was.List().Len() {
				oddly(was.List().Get(i).Message(), fmt.Sprintf("%s[%d]", at, i), fn)
			}
		case fd.IsList():
			for i := range was.List().Len() {
				one := was.List().Get(i)
				for _, v := range oddValues(fd, one) {
					was.List().Set(i, v)
					fn(at)
				}
				was.List().Set(i, one)
			}
		case fd.Message() != nil:
			oddly(was.Message(), at, fn)
		default:
			for _, v := range oddValues(fd, was) {
				m.Set(fd, v)
				fn(at)
			}
			m.Set(fd, was)
			return true
		}
		if fd.ContainingOneof() == nil {
			m.Clear(fd)
			fn("no " + at)
			m.Set(fd, was)
		}
		return true
	})
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		if m.Has(fd) || fd.IsList() || fd.IsMap() || fd.Message() != nil || fd.ContainingOneof() != nil {
			continue
		}
		if vs := oddValues(fd, m.Get(fd)); len(vs) > 0 { // the largest of them
			m.Set(fd, vs[len(vs)-1])
			fn(path + "." + string(fd.Name()))
			m.Clear(fd)
		}
	}
}

// TestOddFields: whatever stands in one field of a command, of any kind, it is refused,
// and then nothing changes, or applied, and then the state has a hash and can be written
// and read. No replica stops.
func TestOddFields(t *testing.T) {
	t.Parallel()
	e, err := DecodeEntry(unhex(t, fmt.Sprintf("entry.v%d.hex", EntryVersion)))
	if err != nil {
		t.Fatal(err)
	}
	f := New(Options{})
	n := 0
	for i, cmd := range e.Commands {
		snap, index := snapshotOf(t, f), uint64(i)+1
		hash := entitiesHash(f)
		kind, odd := kindOf(cmd), proto.CloneOf(cmd)
		oddly(odd.ProtoReflect(), kind, func(path string) {
			n++
			what := path
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("command %d with another %s stops the replica: %v", i, what, r)
				}
			}()
			data, err := EncodeEntry(EntryVersion, e.Term, f.st.at.Now, []*logv1.Command{odd})
			if err != nil {
				t.Fatal(err)
			}
			g := restored(t, snap)
			r := applyTo(t, g, index, e.Term, data)[0]
			if r.Err != nil && hash != entitiesHash(g) {
				t.Errorf("command %d with another %s was refused (%v) and changed the hash", i, what, r.Err)
			}
			if _, err := readSnapshot(bytes.NewReader(snapshotOf(t, g)), Options{}); err != nil {
				t.Errorf("command %d with another %s makes a state that cannot be read: %v", i, what, err)
			}
		})
		data, err := EncodeEntry(EntryVersion, e.Term, f.st.at.Now, []*logv1.Command{cmd})
		if err != nil {
			t.Fatal(err)
		}
		applyTo(t, f, index, e.Term, data)
	}
	if n < 1500 {
		t.Errorf("only %d values were tried", n)
	}
}
