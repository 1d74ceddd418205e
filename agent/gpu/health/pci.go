package health

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NVIDIA's vendor id and the classes of its GPUs: VGA and 3D controllers.
const (
	vendorNVIDIA = "0x10de"
	classVGA     = "0x0300"
	class3D      = "0x0302"
)

// PCICards returns the PCI locations of NVIDIA's GPUs in the form of PCIKey, sorted. root is
// /sys/bus/pci/devices, or a directory like it.
func PCICards(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	var out []string
	for _, e := range entries {
		key, ok := PCIKey(e.Name())
		if !ok {
			continue
		}
		vendor, err := attribute(root, e.Name(), "vendor")
		if err != nil {
			return nil, err
		}
		class, err := attribute(root, e.Name(), "class")
		if err != nil {
			return nil, err
		}
		if vendor == vendorNVIDIA && (strings.HasPrefix(class, classVGA) || strings.HasPrefix(class, class3D)) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out, nil
}

// attribute reads a device's file, "" if the device has gone meanwhile.
func attribute(root, device, name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, device, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read PCI device %s: %w", device, err)
	}
	return strings.TrimSpace(string(data)), nil
}
