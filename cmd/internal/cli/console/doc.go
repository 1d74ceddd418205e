// Package console is a command's outside world: streams, environment, clock,
// exit codes, and the layout of results as tables, JSON and YAML.
package console
