// Package notifycmd holds the commands for webhooks, and for what could not be
// told of jobs.
package notifycmd
