// Package conv converts between wire messages and the types of package
// cluster. With package apiconv, for what users send and see, it is the only place
// that knows both, so that a change of storage or of the public API is made here
// and nowhere else.
package conv
