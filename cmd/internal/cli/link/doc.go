// Package link is a client for gRPC calls with encoded messages over a unix
// socket. It links nothing that is slow to initialize, protobuf included,
// since every command waits for it. The server is an ordinary gRPC server. A
// connection carries one call at a time, so that HTTP/2's frames need no
// scheduler; concurrent calls have a connection each.
package link
