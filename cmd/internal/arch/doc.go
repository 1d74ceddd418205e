// Package arch holds no program. Its tests read the source of the whole module
// and fail when it breaks the rules of how the module is built: who imports
// whom, what the deterministic packages may touch, how long files and
// functions may be, and that what is exported is explained.
package arch
