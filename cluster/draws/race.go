//go:build race

package draws

const raceDetector = true
