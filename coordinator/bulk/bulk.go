// Package bulk keeps large, seldom needed parts of the state, jobs' environments
// and scripts, in a file rather than in memory.
//
// A coordinator may lose the file. It has no name, disappears with the process, and
// is written again from the snapshot and the log when the next one starts; so
// nothing is synced and nothing can be left over. Equal content is kept once. Room
// is freed when nothing references a content any more, which the garbage collector
// detects.
package bulk

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

// page is the alignment of contents, so that their room can be returned to the file
// system.
const page = 4 << 10

// Store keeps contents. It is safe for concurrent use.
type Store struct {
	log  *slog.Logger
	file *os.File

	mu    sync.Mutex
	end   int64
	items map[[sha256.Size]byte]weak.Pointer[Item]
	full  bool // the last content did not fit
}

// Item is one content. It implements cluster.Bulk.
type Item struct {
	store    *Store
	sum      [sha256.Size]byte
	at, size int64
	bytes    int64
	scripted bool
}

// Open creates an empty store in a directory, which it creates if needed.
func Open(dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, ".bulk-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	return &Store{log: log, file: f, items: map[[sha256.Size]byte]weak.Pointer[Item]{}}, nil
}

// Keep stores an environment and a packed script. It returns nil if the file has no
// room for them: then they stay in memory.
func (s *Store) Keep(env []string, script []byte) cluster.Bulk {
	data := cluster.EncodeBulk(env, script)
	sum := sha256.Sum256(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.items[sum].Value(); it != nil {
		return it
	}
	if _, err := s.file.WriteAt(data, s.end); err != nil {
		if !s.full {
			s.log.Warn("environments and scripts stay in memory: there is no room for them on the disk", "err", err)
		}
		s.full = true
		return nil
	}
	it := &Item{store: s, sum: sum, at: s.end, size: int64(len(data)), bytes: int64(len(script)), scripted: len(script) > 0}
	for _, e := range env {
		it.bytes += int64(len(e))
	}
	s.end += (it.size + page - 1) / page * page
	s.full = false
	s.items[sum] = weak.Make(it)
	runtime.AddCleanup(it, s.free, region{sum, it.at, it.size})
	return it
}

// region is what an item leaves behind.
type region struct {
	sum      [sha256.Size]byte
	at, size int64
}

// free frees the room of an item that nothing references any more.
func (s *Store) free(r region) {
	s.mu.Lock()
	if s.items[r.sum].Value() == nil { // otherwise it was stored again meanwhile
		delete(s.items, r.sum)
	}
	s.mu.Unlock()
	size := (r.size + page - 1) / page * page
	// File systems that cannot do it free everything at the process's end.
	_ = unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, r.at, size)
}

// Sum implements cluster.Bulk.
func (it *Item) Sum() [sha256.Size]byte { return it.sum }

// Bytes implements cluster.Bulk.
func (it *Item) Bytes() int64 { return it.bytes }

// Scripted implements cluster.Bulk.
func (it *Item) Scripted() bool { return it.scripted }

// Load implements cluster.Bulk.
func (it *Item) Load() ([]string, []byte) {
	data := make([]byte, it.size)
	_, err := it.store.file.ReadAt(data, it.at)
	runtime.KeepAlive(it) // its room must not be freed before here
	env, script, ok := cluster.ParseBulk(data)
	if err != nil || !ok || sha256.Sum256(data) != it.sum {
		panic(fmt.Sprintf("bulk: a job's environment and script, %d bytes at %d of a file in the data directory, cannot be read back: %v; "+
			"look at the disk and the kernel's log, then start the coordinator again", it.size, it.at, err))
	}
	return env, script
}
