package model

import (
	_ "embed"
	"fmt"
)

// builtin is what "berth model fit" produces from the published measurements whose
// licences allow it; see builtin.md.
//
//go:embed builtin.weights
var builtin []byte

// DefaultWeights returns the weights that a new cluster begins with: CoreWeights,
// and what was learned from published measurements.
func DefaultWeights() Weights {
	w, err := DecodeWeights(builtin)
	if err != nil {
		// The file is embedded, and a test decodes it.
		panic(fmt.Sprintf("model: built-in weights: %v", err))
	}
	return w
}
