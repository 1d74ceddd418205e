// Package link makes gRPC's calls of encoded messages over a unix socket, as a client,
// and links nothing that takes long to initialize, protobuf included: whoever runs a
// command waits for it. The other end is an ordinary gRPC server. A connection carries one
// call at a time, so that HTTP/2's frames need no scheduler; calls made at once have a
// connection each.
package link
