// Package deploy contains no program: systemd units, sample configurations and the operator's
// README, with tests that check them.
package deploy
