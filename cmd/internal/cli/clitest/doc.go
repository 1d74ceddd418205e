// Package clitest supports tests of the commands: a World to run them in,
// without real time, file system or socket, and a Fake that answers in place
// of the coordinators. Commands run through the whole tree, as users type
// them.
package clitest
