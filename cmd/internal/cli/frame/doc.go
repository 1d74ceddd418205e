// Package frame is the command-line frame that Berth's programs share: a root
// command that builds only the requested command, the errors for unknown
// words, and how a process ends. A command that another program provides is
// started there.
package frame
