// Package jsonout writes values as JSON for people and programs: indented by
// two spaces, HTML unescaped, and what could steer a terminal escaped. An
// Encoder works out once how values of a type are written and then appends
// their text, whereas encoding/json inspects each value anew and its output
// has to be indented and escaped afterwards.
package jsonout
