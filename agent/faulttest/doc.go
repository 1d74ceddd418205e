// Package faulttest contains only tests. They break agents and containerd again and again, as
// separate processes with real jobs, and count the outcomes: no exit code may be wrong or lost,
// nothing may run twice, and nothing may be left behind.
package faulttest
