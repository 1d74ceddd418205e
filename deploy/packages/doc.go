// Package packages contains no program: the sources of the deb and rpm packages, the scripts
// that build them and try them out, with tests of their contents.
package packages
