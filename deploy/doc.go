// Package deploy holds no program: systemd units, sample configurations and
// the operator's README, with tests that hold them to what they promise.
package deploy
