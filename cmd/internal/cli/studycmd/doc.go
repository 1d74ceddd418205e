// Package studycmd implements searches over parameters: berth study.
package studycmd
