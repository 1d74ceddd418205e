package learner

import (
	"crypto/sha256"

	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
)

// SourceBuiltIn is where version 0 comes from.
const SourceBuiltIn = "built-in"

// BuiltIn returns the weights that a cluster starts with.
func BuiltIn() fsm.WeightsVersion {
	w := model.DefaultWeights()
	blob := w.Encode()
	sum := sha256.Sum256(blob)
	return fsm.WeightsVersion{Blob: blob, SHA256: sum[:], Source: SourceBuiltIn}
}
