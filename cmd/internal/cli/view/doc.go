// Package view defines what -o json and yaml print of jobs and nodes, and the
// blocks of text that several commands share.
package view
