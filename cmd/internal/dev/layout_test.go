package dev

import (
	"net"
	"slices"
	"testing"
)

// TestPortsAreOfOneCluster: ports that are taken, though no daemon listens on
// them yet, are not given to another cluster.
func TestPortsAreOfOneCluster(t *testing.T) {
	var one, other layout
	t.Cleanup(one.freePorts)
	t.Cleanup(other.freePorts)
	addrs, err := one.takePorts(8)
	if err != nil || len(slices.Compact(slices.Sorted(slices.Values(addrs)))) != 8 {
		t.Fatalf("8 ports: %v, %v", addrs, err)
	}
	var ports []int
	for _, a := range addrs {
		addr, err := net.ResolveTCPAddr("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, addr.Port)
		if got, err := other.takePort(addr.Port); err == nil {
			t.Errorf("%s is given twice", got)
		}
	}
	// Programs that know nothing of the marks may listen on one of them, but not on all.
	own := 0
	for _, a := range addrs {
		if ln, err := net.Listen("tcp", a); err == nil {
			own++
			if err := ln.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	one.freePorts()
	again := 0
	for _, p := range ports {
		if _, err := other.takePort(p); err == nil {
			again++
		}
	}
	if own == 0 || again == 0 {
		t.Errorf("its own daemons can listen on %d of 8 ports, and others on %d once it ended", own, again)
	}
}
