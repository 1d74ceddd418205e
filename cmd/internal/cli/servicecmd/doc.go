// Package servicecmd implements berth service: jobs that serve requests until
// they are ended.
package servicecmd
