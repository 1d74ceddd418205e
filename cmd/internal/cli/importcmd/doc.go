// Package importcmd has the commands that take over what another scheduler was
// set up with.
package importcmd
