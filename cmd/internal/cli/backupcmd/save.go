package backupcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/coordinator/backup"
)

// NewClusterCmd returns the part of the command cluster that handles saved states.
func NewClusterCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster"}
	cmd.AddCommand(newSnapshotCmd(e, c))
	return cmd
}

func newSnapshotCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Short: "Save and restore the coordinators' state",
		Example: "  berth cluster snapshot save /var/backups/berth.snap\n  berth cluster snapshot show /var/backups/berth.snap",
	}
	cmd.AddCommand(newSaveCmd(e, c), newShowCmd(e), newRestoreCmd(e))
	return cmd
}

func newSaveCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "save FILE", Short: "Save the coordinators' state to a file",
		Long: "Save the coordinators' state to a file: everything acknowledged so far, read from the leader while the\n" +
			"cluster keeps running. FILE is replaced only by a complete copy and is readable only by its owner: it\n" +
			"holds the jobs' commands and the webhooks' secrets. docs/backups.md says what else to keep.",
		Example: "  berth cluster snapshot save /var/backups/berth-$(date +%F).snap",
		Args:    console.OneArg("file"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runSave(cmd.Context(), e, c, args[0]) },
	}
}

func runSave(ctx context.Context, e *console.Env, c *client.Client, path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return console.Usagef("%s is not a regular file; name one that can be replaced", console.ShortQuote(path))
	}
	h, size, err := save(ctx, c, path)
	if err != nil {
		return err
	}
	e.Printf("Saved %s (%s): cluster %s, index %d, term %d, state %.12s\n", console.Escape(path), console.BytesText(size), console.Escape(h.ClusterID), h.Index, h.Term, h.StateHash)
	return nil
}

// save writes a temporary file next to path, checks it and renames it.
func save(ctx context.Context, c *client.Client, path string) (h backup.Header, size int64, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return h, 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // best effort: the first error is what counts
		}
	}()
	err = c.SaveBackup(ctx, tmp)
	if err == nil {
		h, size, err = check(tmp)
	}
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return h, 0, err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return h, 0, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return h, 0, err
	}
	return h, size, errors.Join(dir.Sync(), dir.Close())
}

// check reads a whole file, loads the state in it as a restore does, and rewinds it.
func check(f *os.File) (h backup.Header, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return h, 0, err
	}
	if !info.Mode().IsRegular() {
		return h, 0, fmt.Errorf("%s is not a regular file", f.Name())
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return h, 0, err
	}
	if h, err = backup.Check(f, info.Size()); err != nil {
		return h, 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return h, 0, err
	}
	// A valid checksum shows that it is what was written, not that it can be restored.
	if _, _, err = backup.Load(f, nil); err != nil {
		return h, 0, fmt.Errorf("%s cannot be restored by berth %s: %w", f.Name(), console.Version().Version, err)
	}
	_, err = f.Seek(0, io.SeekStart)
	return h, info.Size(), err
}

func newShowCmd(e *console.Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show FILE", Short: "Check a snapshot and show what it holds",
		Example: "  berth cluster snapshot show /var/backups/berth.snap\n  berth cluster snapshot show /var/backups/berth.snap -o json",
		Args:    console.OneArg("file"),
		RunE:    func(_ *cobra.Command, args []string) error { return runShow(e, args[0], console.Format(output)) },
	}
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

func runShow(e *console.Env, path string, format console.Format) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h, size, err := check(f)
	if err != nil {
		return err
	}
	if done, err := console.PrintList(e, format, h); done {
		return err
	}
	console.KeyValues(e, "",
		"Cluster", h.ClusterName+" ("+h.ClusterID+")",
		"Saved", h.Saved.UTC().Format(time.RFC3339),
		"By", "berth "+h.Version,
		"Index", fmt.Sprintf("%d, term %d", h.Index, h.Term),
		"Next job", fmt.Sprint(h.NextJob),
		"State", h.StateHash,
		"Size", console.BytesText(size)+", checksum correct, can be restored",
	)
	return nil
}
