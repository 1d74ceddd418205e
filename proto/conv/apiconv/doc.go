// Package apiconv maps what users send and see to the vocabulary of package cluster,
// and back. It is apart from package conv, which knows the log and the agents' link,
// too: a command links what users see and no more.
package apiconv
