// Package notifycmd implements the commands for webhooks and for undelivered
// notifications.
package notifycmd
