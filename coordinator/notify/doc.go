// Package notify sends notifications about jobs to users and sites: mail through
// the site's sendmail program, and JSON to webhooks. Notices wait in the state
// machine, so that no leader's failure loses them; a Sender takes them from there,
// and has them removed once they arrived or were given up.
package notify
