// Package acctcmd has the commands that look back: history, eff and report.
package acctcmd
