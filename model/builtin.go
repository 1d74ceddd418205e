package model

import (
	_ "embed"
	"fmt"
)

// builtin is what "berth model fit" makes of the published measurements whose
// licences allow it; see builtin.md.
//
//go:embed builtin.weights
var builtin []byte

// DefaultWeights are the weights that a new cluster begins with: CoreWeights,
// and what was learned from published measurements.
func DefaultWeights() Weights {
	w, err := DecodeWeights(builtin)
	if err != nil {
		// The file is part of the program, and a test reads it.
		panic(fmt.Sprintf("model: built-in weights: %v", err))
	}
	return w
}
