// Package backupcmd implements the commands that save the coordinators' state
// into a file, inspect such files, and restore a cluster's directories from
// one.
package backupcmd
