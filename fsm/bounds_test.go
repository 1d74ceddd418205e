package fsm

import "time"

// The bounds of the machines that tests go up to, stated once more: who changes one
// changes what replicas of one version do.
const (
	maxTokens, maxIdentity                     = 10_000, 255
	maxWeights, keptWeights                    = 256 << 10, 8
	maxInterference                            = 64 << 10
	maxSamples, perSignature, perUser          = 4096, 64, 1024
	maxPowerW, maxIOBytes, maxMore             = 10_000, 1 << 60, 1 << 20
	longestRun                                 = 366 * 24 * time.Hour
	maxNotices, maxMailsOfUser, maxHooksOfUser = 100_000, 2_000, 8
	maxDeadNotices, maxDeadReason              = 1_000, 300
)
