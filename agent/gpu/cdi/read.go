package cdi

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Bounds of a file. A node with 16 GPUs, each divided into 7, has about 100 KiB.
const (
	maxBytes   = 2 << 20
	maxFiles   = 256
	maxDevices = 1024
	maxEdits   = 4096 // of one kind, in one place
)

// specSet is what the directories contain for our kind.
type specSet struct {
	devices map[string]*found
	// others are files of other kinds, bad those of our kind that were refused.
	others []string
	bad    []*Error
}

// load reads every specification. A refused file does not hide the others.
func (in *Injector) load() (*specSet, error) {
	set := &specSet{devices: map[string]*found{}}
	for _, dir := range in.cfg.Dirs {
		if err := in.loadDir(set, dir); err != nil {
			return nil, err
		}
	}
	if len(set.devices) > 0 {
		return set, nil
	}
	if len(set.bad) > 0 {
		return nil, set.bad[0]
	}
	e := &Error{Fault: Missing, Text: fmt.Sprintf("no specification of kind %s in %s", Qualifier, strings.Join(in.cfg.Dirs, " or ")), Fix: Generate(defaultFile)}
	if len(set.others) > 0 {
		e.Text += fmt.Sprintf(" (%s is of another kind)", set.others[0])
	}
	return nil, e
}

// loadDir adds the files of one directory, which may define each device only once; they
// override those of earlier directories.
func (in *Injector) loadDir(set *specSet, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Error{Fault: Refused, File: dir, Text: err.Error()}
	}
	here := map[string]*found{}
	for i, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != ".yaml" && ext != ".json" {
			continue
		}
		file := filepath.Join(dir, e.Name())
		if i >= maxFiles {
			return &Error{Fault: Refused, File: dir, Text: fmt.Sprintf("more than %d files", maxFiles)}
		}
		data, err := in.readFile(file)
		if err != nil {
			set.refuse(file, err)
			continue
		}
		spec, err := in.Parse(data)
		if _, ok := errors.AsType[*otherKind](err); ok {
			set.others = append(set.others, file)
			continue
		}
		if err != nil {
			set.refuse(file, err)
			continue
		}
		for i := range spec.Devices {
			d := &spec.Devices[i]
			if first, dup := here[d.Name]; dup {
				set.refuse(file, fmt.Errorf("device %q is also in %s; remove one of the two files", d.Name, first.file))
				break
			}
			here[d.Name] = &found{file: file, spec: spec, dev: d}
		}
	}
	maps.Copy(set.devices, here)
	return nil
}

func (s *specSet) refuse(file string, err error) {
	s.bad = append(s.bad, &Error{Fault: Refused, File: file, Text: err.Error(), Fix: regenerate(file)})
}

// find returns a GPU's device.
func (s *specSet) find(uuid string) (*found, error) {
	if !byUUID(uuid) { // "all", or a number that changes at the next boot
		return nil, &Error{Fault: Lacks, UUID: uuid, Text: fmt.Sprintf("device %.80q is not a GPU's UUID", uuid)}
	}
	if f := s.devices[uuid]; f != nil {
		return f, nil
	}
	if len(s.bad) > 0 {
		return nil, s.bad[0]
	}
	file := defaultFile
	for _, name := range slices.Sorted(maps.Keys(s.devices)) {
		file = s.devices[name].file
		break
	}
	text := fmt.Sprintf("has no device %s", uuid)
	if u := s.uuids(); len(u) == 0 {
		text += "; its devices are named by index"
	} else {
		text += fmt.Sprintf(", only %s", strings.Join(u[:min(len(u), 4)], ", "))
	}
	return nil, &Error{Fault: Lacks, File: file, UUID: uuid, Text: text, Fix: regenerate(file)}
}

// byUUID reports whether a device name is of the kind that jobs use.
func byUUID(name string) bool {
	return strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-")
}

func (s *specSet) uuids() []string {
	var out []string
	for name := range s.devices {
		if byUUID(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// readFile reads a file that only root can have written.
func (in *Injector) readFile(file string) ([]byte, error) {
	// O_NONBLOCK: opening a FIFO without a writer would wait for ever.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a plain file")
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && !in.cfg.AnyOwner && (st.Uid != 0 || info.Mode().Perm()&0o022 != 0) {
		return nil, fmt.Errorf("belongs to uid %d with mode %04o; it says what root does for jobs: it must be root's, and closed to other writers (chown root, chmod 644)", st.Uid, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		err = fmt.Errorf("has more than %d bytes", maxBytes)
	}
	return data, err
}

// otherKind says that a specification is not of our kind.
type otherKind struct{ kind string }

func (o *otherKind) Error() string {
	return fmt.Sprintf("kind is %.80q, want %s", o.kind, Qualifier)
}

// Parse parses one specification, YAML or JSON, and checks every part of it against what jobs
// may get. It accesses no files.
func (in *Injector) Parse(data []byte) (*specs.Spec, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("has more than %d bytes", maxBytes)
	}
	spec, err := cdi.ParseSpec(data)
	if err != nil {
		return nil, oneLine(err)
	}
	if spec == nil {
		return nil, errors.New("is empty")
	}
	if spec.Kind != Qualifier {
		return nil, &otherKind{spec.Kind}
	}
	if len(spec.Devices) == 0 || len(spec.Devices) > maxDevices {
		return nil, fmt.Errorf("has %d devices, want 1 to %d", len(spec.Devices), maxDevices)
	}
	if err := in.allow("containerEdits", &spec.ContainerEdits); err != nil {
		return nil, err
	}
	for _, n := range spec.ContainerEdits.DeviceNodes {
		if in.classOf(n.Path) == classCard {
			return nil, fmt.Errorf("containerEdits: %s is a card, and would be given to every job", n.Path)
		}
	}
	names := map[string]struct{}{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if err := deviceName(d.Name); err != nil {
			return nil, err
		}
		if _, dup := names[d.Name]; dup {
			return nil, fmt.Errorf("device %q is there twice", d.Name)
		}
		names[d.Name] = struct{}{}
		if err := in.allow("device "+d.Name, &d.ContainerEdits); err != nil {
			return nil, err
		}
	}
	// Not earlier: it does not expect null entries.
	if err := specs.ValidateVersion(spec); err != nil {
		return nil, fmt.Errorf("cdiVersion %.40q: %w", spec.Version, oneLine(err))
	}
	return spec, in.ownNodes(spec)
}

// ownNodes checks that a GPU's device refers to its GPU and no other: one node each, and none
// for two GPUs.
func (in *Injector) ownNodes(spec *specs.Spec) error {
	owner := map[string]string{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		gpu := strings.HasPrefix(d.Name, "GPU-")
		if !byUUID(d.Name) {
			continue // an index, or "all": never used
		}
		var cards []*specs.DeviceNode
		for _, n := range d.ContainerEdits.DeviceNodes {
			if in.classOf(n.Path) == classCard {
				cards = append(cards, n)
			}
		}
		if len(cards) != 1 {
			return fmt.Errorf("device %s has %d nodes of cards, want 1", d.Name, len(cards))
		}
		if !gpu {
			continue
		}
		for _, key := range []string{"in " + cards[0].Path, "on " + hostPath(cards[0])} {
			if first, dup := owner[key]; dup {
				return fmt.Errorf("devices %s and %s are both %s", first, d.Name, cards[0].Path)
			}
			owner[key] = d.Name
		}
	}
	return nil
}

func deviceName(s string) error {
	ok := s != "" && len(s) <= 128
	for _, c := range []byte(s) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:/", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("device %.80q is no name of a device", s)
	}
	return nil
}

// oneLine joins a decoder's several lines into one.
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return errors.New(text)
}
