package caps

import (
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// instancePrefix begins the UUID of every MIG instance.
const instancePrefix = "MIG-"

// IsInstance reports whether a UUID is that of a MIG instance rather than a GPU.
func IsInstance(uuid string) bool { return strings.HasPrefix(uuid, instancePrefix) }

// Sold returns the GPUs as they are offered: one in MIG mode becomes one GPU per instance,
// each with its own memory and a type such as "A100-SXM4-40GB.1g.5gb", and none without
// instances, since nothing runs on the GPU itself then. Others stay as they are, in place.
func Sold(cards []gpu.Card) []gpu.Card {
	out := make([]gpu.Card, 0, len(cards))
	for _, c := range cards {
		if c.MIG != gpu.ModeOn {
			out = append(out, c)
			continue
		}
		for _, in := range c.Instances {
			if in.UUID == "" || in.MemMiB <= 0 {
				continue
			}
			part := c
			part.UUID, part.MemMiB, part.ReservedMiB = in.UUID, in.MemMiB, 0
			part.Type = c.Type + "." + profileOf(in)
			part.Name = c.Name + " MIG " + profileOf(in)
			part.MIG, part.Instances, part.NVLinkGroup, part.PowerLimitW = gpu.ModeUnknown, nil, 0, 0
			out = append(out, part)
		}
	}
	return out
}

// profileOf names an instance after its memory if the driver does not report its profile.
func profileOf(in gpu.Instance) string {
	if in.Profile != "" {
		return in.Profile
	}
	return "mig." + strconv.FormatInt((in.MemMiB+512)>>10, 10) + "gb"
}
