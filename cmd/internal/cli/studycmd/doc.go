// Package studycmd is searches over parameters: berth study.
package studycmd
