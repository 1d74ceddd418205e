// Package backupcmd has the commands that save the coordinators' state into a
// file, look at such files, and make a cluster's directories of one.
package backupcmd
