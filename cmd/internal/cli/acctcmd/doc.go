// Package acctcmd implements the commands about past jobs: history, eff and report.
package acctcmd
