//go:build !linux

package sim

import (
	"errors"
	"net"
)

// peerOf always fails: only Linux reports the peer.
func peerOf(net.Conn) (peer, error) {
	return peer{}, errors.New("simulated GPUs need Linux: no SO_PEERCRED here")
}
