// Package top is the command berth top: it keeps a screen in step with the cluster,
// by one stream of jobs and by asking for the nodes, draws it on a terminal, and
// carries out what the user wants done.
package top
