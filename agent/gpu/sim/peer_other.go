//go:build !linux

package sim

import (
	"errors"
	"net"
)

// peerOf refuses everybody: who connected can be known only on Linux.
func peerOf(net.Conn) (peer, error) {
	return peer{}, errors.New("simulated GPUs need Linux: no SO_PEERCRED here")
}
