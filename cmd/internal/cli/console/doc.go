// Package console is the outside world of a command: streams, environment, clock,
// exit codes, and how results are laid out as tables, JSON and YAML.
package console
