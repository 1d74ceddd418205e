// Package jsonout writes values as JSON for people and programs: two spaces of indent, HTML
// as it is, and what could steer a terminal escaped. An Encoder works out once how values of
// a type are written and then appends their text, where encoding/json goes over each value
// anew and its output has to be indented and escaped afterwards.
package jsonout
