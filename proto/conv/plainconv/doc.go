// Package plainconv writes and reads what a submit consists of, as package apiconv does,
// without protobuf's library: a command that links that needs twice as long to start.
package plainconv
