package authorize

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/berth-scheduler/berth/cluster"
)

// UnixPeer is the peer at the other end of a unix socket, from the kernel
// (SO_PEERCRED), read once when the connection was accepted.
type UnixPeer struct {
	credentials.CommonAuthInfo
	UID cluster.UID
	GID uint32
	PID int32
}

// AuthType implements credentials.AuthInfo.
func (UnixPeer) AuthType() string { return "unix" }

// UnixCredentials returns the server's credentials for a unix socket: no secret is
// exchanged, the kernel vouches for the peer.
func UnixCredentials() credentials.TransportCredentials { return unixCreds{} }

type unixCreds struct{}

// Within is a connection that another part of this process made for a user it
// knows, to call as that user does over the socket.
type Within struct {
	net.Conn
	UID cluster.UID
	GID uint32
}

// ServerHandshake implements credentials.TransportCredentials.
func (unixCreds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if w, ok := conn.(Within); ok {
		return w, UnixPeer{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, UID: w.UID, GID: w.GID}, nil
	}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("peer credentials: %T is no unix socket", conn)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, cerr); err != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", err)
	}
	if cred.Uid > 1<<31-1 || cred.Gid > 1<<31-1 {
		return nil, nil, fmt.Errorf("peer credentials: uid %d, gid %d are out of range", cred.Uid, cred.Gid)
	}
	return conn, UnixPeer{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		UID:            cluster.UID(cred.Uid), GID: cred.Gid, PID: cred.Pid,
	}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (unixCreds) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers")
}

// Info implements credentials.TransportCredentials.
func (unixCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

// Clone implements credentials.TransportCredentials.
func (u unixCreds) Clone() credentials.TransportCredentials { return u }

// OverrideServerName implements credentials.TransportCredentials.
func (unixCreds) OverrideServerName(string) error { return nil }
