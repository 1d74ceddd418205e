package batch

import (
	"os"
	"strconv"
	"strings"
)

// idVar passes a request id to the program that a process becomes. It is
// valid for that process alone.
const idVar = "BERTH_REQUEST"

// LeaveID leaves the id of a possibly sent request to the program that this
// process becomes.
func LeaveID(id string, setenv func(name, value string) error) error {
	return setenv(idVar, strconv.Itoa(os.Getpid())+":"+id)
}

// TakeID returns the id that was left to this process, "" for none.
func TakeID(getenv func(string) string) string {
	pid, id, _ := strings.Cut(getenv(idVar), ":")
	if pid != strconv.Itoa(os.Getpid()) {
		return ""
	}
	return id
}
