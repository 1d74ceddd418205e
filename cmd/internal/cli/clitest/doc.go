// Package clitest is what tests of the commands stand on: a World to run them
// in, which knows no real time, file system or socket, and a Fake that answers
// in the coordinators' place. Commands run through the whole tree, as users type
// them.
package clitest
