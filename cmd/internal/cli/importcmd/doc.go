// Package importcmd implements the commands that import another scheduler's setup.
package importcmd
