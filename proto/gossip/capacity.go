package gossip

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Capacity is how full the GPUs of a node are, as its agent sees them.
//
//	0  magic 2 | version 1 | boot hash 8 | sequence 8 | GPUs 1 | name length 1
//	21 name, then for each GPU
//	   UUID hash 8 | free MiB 4 | stray MiB 4 | utilization 2
//	and a signature of 16 bytes, see Signed
type Capacity struct {
	Node string
	Boot [8]byte
	// Seq rises with each message of one boot. See Newer.
	Seq  uint64
	GPUs []GPU // at most MaxGPUs
}

// GPU is one card in a Capacity.
type GPU struct {
	ID        uint64 // UUIDHash of its UUID
	FreeMiB   uint32 // not held by any process nor by the driver
	StrayMiB  uint32 // held by processes that were not started through Berth
	UtilMilli uint16 // 0-1000, or UtilUnknown
}

// UtilUnknown is the utilization of a card that does not tell.
const UtilUnknown = 0xFFFF

// UUIDHash shortens a GPU's UUID.
func UUIDHash(uuid string) uint64 {
	h := sha256.Sum256([]byte(uuid))
	return binary.BigEndian.Uint64(h[:])
}

// Append appends c to b, signed with key. It refuses what no reader would take.
func (c Capacity) Append(b, key []byte) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, magicCapacity)
	b = append(b, CapacityVersion)
	b = append(b, c.Boot[:]...)
	b = binary.BigEndian.AppendUint64(b, c.Seq)
	b = append(b, byte(len(c.GPUs)), byte(len(c.Node)))
	b = append(b, c.Node...)
	for _, g := range c.GPUs {
		b = binary.BigEndian.AppendUint64(b, g.ID)
		b = binary.BigEndian.AppendUint32(b, g.FreeMiB)
		b = binary.BigEndian.AppendUint32(b, g.StrayMiB)
		b = binary.BigEndian.AppendUint16(b, g.UtilMilli)
	}
	return append(b, sign(b[start:], key)...), nil
}

func sign(b, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)[:macSize]
}

// Signed reports whether a Capacity, as it came, was signed with key.
func Signed(b, key []byte) bool {
	n := len(b) - macSize
	return n > 0 && hmac.Equal(b[n:], sign(b[:n], key))
}

// Relay returns a Capacity, as it was made, for a member that is to pass it on to
// the coordinators: it may reach one that its node does not.
func Relay(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, magicRelay), b...) }

// Relayed returns what Relay was given; ok is false of what it did not make. What
// that is, is not looked at.
func Relayed(b []byte) (inner []byte, ok bool) {
	if len(b) > 2+MaxCapacity {
		return nil, false
	}
	return bytes.CutPrefix(b, binary.BigEndian.AppendUint16(nil, magicRelay))
}

func (c Capacity) check() error {
	if err := checkNode(c.Node); err != nil {
		return err
	}
	if len(c.GPUs) > MaxGPUs {
		return fmt.Errorf("%w: %d GPUs, at most %d", ErrFormat, len(c.GPUs), MaxGPUs)
	}
	for i, g := range c.GPUs {
		if g.UtilMilli > 1000 && g.UtilMilli != UtilUnknown {
			return fmt.Errorf("%w: GPU %d: utilization %d is outside 0-1000", ErrFormat, i, g.UtilMilli)
		}
		for _, o := range c.GPUs[:i] {
			if o.ID == g.ID {
				return fmt.Errorf("%w: GPU %d: named twice", ErrFormat, i)
			}
		}
	}
	return nil
}

// ParseCapacity reads what Append wrote, all of b and nothing else, whoever
// signed it. Errors wrap ErrFormat.
func ParseCapacity(b []byte) (Capacity, error) {
	if len(b) < capFixed+macSize {
		return Capacity{}, fmt.Errorf("%w: capacity of %d bytes, at least %d", ErrFormat, len(b), capFixed+macSize)
	}
	if err := checkHead(b, magicCapacity, CapacityVersion); err != nil {
		return Capacity{}, err
	}
	gpus, name := int(b[19]), int(b[20])
	if n := capFixed + name + gpus*gpuSize + macSize; n != len(b) {
		return Capacity{}, fmt.Errorf("%w: capacity of %d bytes says it has %d", ErrFormat, len(b), n)
	}
	c := Capacity{
		Node: string(b[capFixed : capFixed+name]),
		Boot: [8]byte(b[3:11]),
		Seq:  binary.BigEndian.Uint64(b[11:]),
	}
	for rest := b[capFixed+name:]; len(rest) > macSize; rest = rest[gpuSize:] {
		c.GPUs = append(c.GPUs, GPU{
			ID:        binary.BigEndian.Uint64(rest),
			FreeMiB:   binary.BigEndian.Uint32(rest[8:]),
			StrayMiB:  binary.BigEndian.Uint32(rest[12:]),
			UtilMilli: binary.BigEndian.Uint16(rest[16:]),
		})
	}
	if err := c.check(); err != nil {
		return Capacity{}, err
	}
	return c, nil
}

// Newer reports whether c replaces old, both of one node. Within a boot the
// sequence decides, so a late or replayed message changes nothing. A message
// of another boot always replaces: sequences of two boots cannot be compared.
func (c Capacity) Newer(old Capacity) bool {
	return c.Boot != old.Boot || c.Seq > old.Seq
}
