package sim

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// peerOf asks the kernel for the peer (SO_PEERCRED): its pid and uid at the time of connect, in
// the agent's own namespaces.
func peerOf(nc net.Conn) (peer, error) {
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		return peer{}, errors.New("not a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, fmt.Errorf("SO_PEERCRED: %w", credErr)
	}
	return peer{pid: int(cred.Pid), uid: cred.Uid}, nil
}
