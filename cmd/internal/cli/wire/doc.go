// Package wire makes gRPC calls with protobuf messages over a unix socket,
// using package link, and with gRPC's status as the error.
package wire
