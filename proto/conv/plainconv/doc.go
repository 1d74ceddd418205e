// Package plainconv encodes and decodes the messages of a submission, as package
// apiconv does, without the protobuf library: a command that links it takes twice
// as long to start.
package plainconv
