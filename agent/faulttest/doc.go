// Package faulttest holds no program. Its tests break agents and containerd
// again and again, as processes of their own with real jobs, and count what
// came of it: no exit code may be wrong or lost, nothing may run twice, and
// nothing may stay behind.
package faulttest
