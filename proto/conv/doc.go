// Package conv converts between wire messages and the types of package cluster.
// Together with package apiconv, for what users send and see, it is the only place
// that knows both, so that changes of storage or of the public API are confined to
// it.
package conv
