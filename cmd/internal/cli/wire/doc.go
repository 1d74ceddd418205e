// Package wire makes gRPC's calls over a unix socket, by package link, of protobuf
// messages and with gRPC's status as the error.
package wire
