package link

// What tests speak HTTP/2 with.
const (
	StreamWindow = streamWindow

	FrameData     = frameData
	FrameHeaders  = frameHeaders
	FrameReset    = frameReset
	FrameSettings = frameSettings
	FrameGoAway   = frameGoAway
	FramePromise  = framePromise

	FlagEnd        = flagEnd
	FlagEndHeaders = flagEndHeaders
	FlagPadded     = flagPadded
	FlagPriority   = flagPriority
)

// Frame appends the head of a frame.
var Frame = frame

// Over is closed when nothing is read any more.
func (s *Stream) Over() <-chan struct{} { return s.over }
