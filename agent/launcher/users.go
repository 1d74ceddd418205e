package launcher

import (
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Users resolves numeric ids through the node's name service.
type Users interface {
	// Resolve returns the groups, home and shell of uid. name is the submitting host's name
	// for it; a different name here is an error.
	Resolve(uid, gid uint32, name string) (User, error)
}

// User is an account of this node.
type User struct {
	Name, Home, Shell string
	Groups            []uint32
}

// submitDirOf returns the directory to which a job's relative paths are relative.
func submitDirOf(as *nodev1.Assignment, user User) string {
	switch {
	case len(as.Dir) > 0:
		return string(as.Dir)
	case user.Home != "":
		return user.Home
	}
	return "/"
}
