// Package statuscmd is what is seen at a glance: berth status, and berth alone.
package statuscmd
