// Package packages holds no program: what deb and rpm packages are made of, the scripts
// that build them and try them out, with tests of what is in them.
package packages
