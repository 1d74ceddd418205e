// Package notify sends what users and sites want to be told of jobs: mail
// through the site's sendmail program, and JSON to webhooks. What is to be told
// waits in the state machine, so that no leader's death loses it; a Sender takes
// it from there, and has it taken away once it arrived or was given up.
package notify
