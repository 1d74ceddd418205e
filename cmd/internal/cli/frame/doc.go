// Package frame is what Berth's programs have in common as command lines: a root
// command that builds of its commands the one that is asked for, what is said of
// words that are no command, and how a process ends. A command that another
// program has is started there.
package frame
