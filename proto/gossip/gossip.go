// Package gossip is the wire form of what daemons tell each other through
// memberlist: who a member is (Meta), and how full a node's GPUs are
// (Capacity). Both are hints. Nothing is started, ended or placed because of
// them. Whoever holds the gossip key can forge a Meta; a Capacity is signed with
// a key that its node tells the leader alone.
//
// Numbers are big-endian. A Meta is bounded below memberlist's 512 bytes of
// node meta, past which it panics, and a Capacity fits in one packet; the
// compiler checks the budget.
package gossip

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Bounds of the messages.
const (
	// MetaVersion and CapacityVersion are those of the messages. A reader
	// refuses others.
	MetaVersion     = 1
	CapacityVersion = 2
	// MaxNode is the longest node name in bytes.
	MaxNode = 63
	// MaxGPUs is the most GPUs of a node.
	MaxGPUs = 16
	// MetaFixed and MaxMeta are the size of a Meta without and with the longest
	// name; MaxCapacity is that of the largest Capacity.
	MetaFixed   = 30
	MaxMeta     = MetaFixed + MaxNode
	capFixed    = 21
	gpuSize     = 18
	macSize     = 16
	MaxCapacity = capFixed + MaxNode + MaxGPUs*gpuSize + macSize
)

// Bounds on what is done for others.
const (
	// MaxCoordinators is to how many coordinators a message goes.
	MaxCoordinators = 16
	// PassRate is how many messages of others a member passes on in a second.
	PassRate = 500
)

// The budget. A constant below zero does not convert to uint, so a message
// that outgrows it does not compile.
const (
	memberlistLimit = 512 // memberlist.MetaMaxSize

	_ = uint(40 - MetaFixed)
	_ = uint(memberlistLimit/4 - MaxMeta)
	_ = uint(memberlistLimit - MaxCapacity)
)

const (
	magicMeta     = 0xBE47
	magicCapacity = 0xBE43
	magicRelay    = 0xBE52
)

// ErrFormat says that bytes are no message of this package and version.
var ErrFormat = errors.New("bad gossip message")

// Role is what a member is.
type Role uint8

// The roles.
const (
	RoleCoordinator Role = 1
	RoleAgent       Role = 2
)

// String returns the role in lower case.
func (r Role) String() string {
	switch r {
	case RoleCoordinator:
		return "coordinator"
	case RoleAgent:
		return "agent"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Flags say what state a member is in.
type Flags uint16

// The flags. A reader keeps those it does not know.
const (
	FlagLeader Flags = 2 // leads the coordinators, as far as it knows
)

// Meta is what a member says of itself in memberlist's node meta.
//
//	0  magic 2 | version 1 | role 1 | protocol 2 | port 2 | flags 2
//	10 boot hash 8 | inventory revision 8 | reserved 3, zero | name length 1
//	30 name
type Meta struct {
	// Node is the name the member's certificate carries, 1 to MaxNode bytes.
	Node string
	Role Role
	// Protocol is the newest version of the RPC protocol it speaks.
	Protocol uint16
	// Port is where a coordinator serves agents, on the address that memberlist
	// knows; 0 for agents.
	Port  uint16
	Flags Flags
	// Boot is BootHash of the machine's boot id: two live boots of one name
	// are a cloned machine.
	Boot [8]byte
	// Inventory rises when the node's GPUs or their state change: a reader
	// that knows a lower one asks over gRPC.
	Inventory uint64
}

// BootHash shortens a boot id, as in /proc/sys/kernel/random/boot_id.
func BootHash(bootID string) [8]byte {
	h := sha256.Sum256([]byte(strings.TrimSpace(bootID)))
	return [8]byte(h[:8])
}

// Append appends m to b. It refuses what no reader would take.
func (m Meta) Append(b []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	b = binary.BigEndian.AppendUint16(b, magicMeta)
	b = append(b, MetaVersion, byte(m.Role))
	b = binary.BigEndian.AppendUint16(b, m.Protocol)
	b = binary.BigEndian.AppendUint16(b, m.Port)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Flags))
	b = append(b, m.Boot[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Inventory)
	b = append(b, 0, 0, 0, byte(len(m.Node)))
	return append(b, m.Node...), nil
}

func (m Meta) check() error {
	if m.Role != RoleCoordinator && m.Role != RoleAgent {
		return fmt.Errorf("%w: unknown %v", ErrFormat, m.Role)
	}
	return checkNode(m.Node)
}

// checkNode follows the rule for names everywhere: ^[a-z0-9][a-z0-9._-]{0,62}$.
func checkNode(name string) error {
	if len(name) < 1 || len(name) > MaxNode {
		return fmt.Errorf("%w: node name of %d bytes, outside 1-%d", ErrFormat, len(name), MaxNode)
	}
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return fmt.Errorf("%w: node name %q: only a-z, 0-9 and, after the first, . _ -", ErrFormat, name)
		}
	}
	return nil
}

// ParseMeta reads what Append wrote, all of b and nothing else. Errors wrap
// ErrFormat.
func ParseMeta(b []byte) (Meta, error) {
	if len(b) < MetaFixed {
		return Meta{}, fmt.Errorf("%w: meta of %d bytes, at least %d", ErrFormat, len(b), MetaFixed)
	}
	if err := checkHead(b, magicMeta, MetaVersion); err != nil {
		return Meta{}, err
	}
	if n := MetaFixed + int(b[29]); n != len(b) {
		return Meta{}, fmt.Errorf("%w: meta of %d bytes says it has %d", ErrFormat, len(b), n)
	}
	if b[26] != 0 || b[27] != 0 || b[28] != 0 {
		return Meta{}, fmt.Errorf("%w: reserved bytes are not zero", ErrFormat)
	}
	m := Meta{
		Node:      string(b[MetaFixed:]),
		Role:      Role(b[3]),
		Protocol:  binary.BigEndian.Uint16(b[4:]),
		Port:      binary.BigEndian.Uint16(b[6:]),
		Flags:     Flags(binary.BigEndian.Uint16(b[8:])),
		Boot:      [8]byte(b[10:18]),
		Inventory: binary.BigEndian.Uint64(b[18:]),
	}
	if err := m.check(); err != nil {
		return Meta{}, err
	}
	return m, nil
}

// checkHead checks the magic and the version of a message of 3 bytes or more.
func checkHead(b []byte, magic uint16, version byte) error {
	if got := binary.BigEndian.Uint16(b); got != magic {
		return fmt.Errorf("%w: begins with %#04x, not %#04x", ErrFormat, got, magic)
	}
	if b[2] != version {
		return fmt.Errorf("%w: version %d, this program reads %d", ErrFormat, b[2], version)
	}
	return nil
}
