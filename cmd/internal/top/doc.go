// Package top is the command berth top: it keeps a screen up to date with the cluster,
// by one stream of jobs and by polling the nodes, draws it on a terminal, and does what
// the user asks for.
package top
