// Package statuscmd implements the overview: berth status, and berth alone.
package statuscmd
