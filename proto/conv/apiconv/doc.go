// Package apiconv maps what users send and see to the types of package cluster, and
// back. It is separate from package conv, which also knows the log and the agents'
// link, so that commands link only what users see.
package apiconv
