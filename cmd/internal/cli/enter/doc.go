// Package enter implements the commands that reach into a job: exec, shell and logs.
package enter
