// Package arch is not linked into any program. Its tests read the source of
// the whole module and fail when it breaks the module's rules: which package
// imports which, what the deterministic packages may use, how long files and
// functions may be, and that exported identifiers are documented.
package arch
