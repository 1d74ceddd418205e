// Package jobspec turns what the user typed (flags, spec files, batch
// scripts, model files) into the description of a job.
package jobspec
