package asuser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
)

// tailTimeout bounds how long Tail waits for a hanging file system.
const tailTimeout = 5 * time.Second

// Tail returns the last n bytes of a regular file, read with the rights of the user of l: links
// work only where that user may go. It gives up on a hanging file after 5 s; its goroutine ends
// when the file system answers.
func Tail(ctx context.Context, l *launch.Launch, path string, n int64) ([]byte, error) {
	type result struct {
		tail []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = Do(ID{UID: l.UID, GID: l.GID, Groups: l.Groups}, func() (err error) {
			r.tail, err = tailOf(path, n)
			return err
		})
		done <- r
	}()
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	select {
	case r := <-done:
		return r.tail, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", path, ctx.Err())
	}
}

// tailOf reads the end of a regular file. It does not wait for a pipe or a device in its place.
func tailOf(path string, n int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", path)
	}
	buf := make([]byte, n)
	got, err := f.ReadAt(buf, max(0, st.Size()-n))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf[:got], nil
}
