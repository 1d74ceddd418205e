// Package imagecmd implements the commands that manage the container images
// of the node they run on.
package imagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/agent/containerdrt"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// ImageStore is what the image commands need of a node's containerd.
type ImageStore interface {
	List(ctx context.Context) ([]containerdrt.Image, error)
	Import(ctx context.Context, archive io.Reader, name string) ([]containerdrt.Image, error)
	Pull(ctx context.Context, ref string) (containerdrt.Image, error)
	Prune(ctx context.Context, unusedFor time.Duration) ([]containerdrt.Image, error)
	Close() error
}

// imageOptions are shared by all image commands.
type imageOptions struct {
	socket, namespace string
	open              func(context.Context, containerdrt.ImagesConfig) (ImageStore, error)
}

// NewCommand returns the command image.
func NewCommand(e *console.Env) *cobra.Command {
	return NewCommandOn(e, func(ctx context.Context, cfg containerdrt.ImagesConfig) (ImageStore, error) {
		return containerdrt.OpenImages(ctx, cfg)
	})
}

// NewCommandOn is NewCommand with the store returned by open.
func NewCommandOn(e *console.Env, open func(context.Context, containerdrt.ImagesConfig) (ImageStore, error)) *cobra.Command {
	o := &imageOptions{open: open}
	cmd := &cobra.Command{
		Use: "image", Short: "Manage this node's container images (root)",
		Long: "Manage this node's container images. They are kept in containerd, so run this as root on the node\n" +
			"itself. A job whose image is here needs no registry.",
		Example: "  berth image list\n  berth image import torch.tar",
	}
	cmd.PersistentFlags().StringVar(&o.socket, "socket", "/run/containerd/containerd.sock", "containerd's socket, as runtime.containerd.socket in agent.yaml")
	cmd.PersistentFlags().StringVar(&o.namespace, "namespace", "berth", "containerd's namespace, as runtime.containerd.namespace in agent.yaml")
	cmd.AddCommand(newImageListCmd(e, o), newImagePullCmd(e, o), newImageImportCmd(e, o), newImagePruneCmd(e, o))
	return cmd
}

// on runs f on the images and gives any error its exit code.
func (o *imageOptions) on(ctx context.Context, f func(ImageStore) error) error {
	s, err := o.open(ctx, containerdrt.ImagesConfig{Address: o.socket, Namespace: o.namespace})
	if errors.Is(err, containerdrt.ErrNoContainerd) {
		return &console.ExitError{Code: console.ExitUnavailable, Err: err}
	}
	if err != nil {
		return err
	}
	err = errors.Join(f(s), s.Close())
	// Its reason is meant for a job's record.
	if le, ok := errors.AsType[*launch.Error](err); ok {
		return le.Err
	}
	return err
}

func newImageListCmd(e *console.Env, o *imageOptions) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List images with their size and last use", Args: console.NoArgs,
		Example: "  berth image list\n  berth image list -o json",
	}, func(ctx context.Context, f console.Format, _ []string) error {
		return o.on(ctx, func(s ImageStore) error {
			list, err := s.List(ctx)
			if err != nil {
				return err
			}
			return printImages(e, f, list)
		})
	}, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
}

// imageView is an image as JSON and YAML show it.
type imageView struct {
	Name       string `json:"name"`
	Digest     string `json:"digest"`
	Bytes      int64  `json:"bytes"`
	Used       string `json:"used"` // RFC 3339
	Containers int    `json:"containers"`
}

func printImages(e *console.Env, f console.Format, list []containerdrt.Image) error {
	views := make([]imageView, len(list))
	for i, img := range list {
		views[i] = imageView{img.Name, img.Digest, img.Bytes, img.Used.UTC().Format(time.RFC3339), img.Containers}
	}
	if done, err := console.PrintRows(e, f, views, func(v imageView) string { return v.Name }); done {
		return err
	}
	if len(list) == 0 {
		e.Printf("no images\n")
		return nil
	}
	t := console.Table{Cols: []console.Column{{Head: "NAME", Shrink: true}, {Head: "DIGEST", Shrink: true}, {Head: "SIZE", Right: true}, {Head: "JOBS", Right: true}, {Head: "LAST USED"}}}
	for _, img := range list {
		t.Add(img.Name, shortDigest(img.Digest), console.BytesText(img.Bytes), strconv.Itoa(img.Containers), img.Used.UTC().Format("2006-01-02 15:04"))
	}
	t.Print(e)
	return nil
}

// shortDigest returns enough of a digest to tell images apart by eye.
func shortDigest(d string) string {
	const n = len("sha256:") + 12
	return d[:min(n, len(d))]
}

func newImagePullCmd(e *console.Env, o *imageOptions) *cobra.Command {
	return &cobra.Command{
		Use: "pull IMAGE...", Short: "Pull images from their registries",
		Long: "Pull images from their registries, even if they are here already: a tag may have moved.\n" +
			"A name with a digest always means the same content.",
		Example: "  berth image pull registry.example.org/lab/torch:2.9\n  berth image pull registry.example.org/lab/torch@sha256:…",
		Args:    console.SomeArgs("image"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.on(cmd.Context(), func(s ImageStore) error {
				for _, ref := range args {
					img, err := s.Pull(cmd.Context(), ref)
					if err != nil {
						return err
					}
					sayImage(e, "pulled", img)
				}
				return nil
			})
		},
	}
}

func sayImage(e *console.Env, what string, img containerdrt.Image) {
	e.Printf("%s %s %s (%s)\n", what, console.Escape(img.Name), img.Digest, console.BytesText(img.Bytes))
}

func newImageImportCmd(e *console.Env, o *imageOptions) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Import images from an archive, without a registry",
		Long: "Import images from an archive: a tar file with an OCI image layout, or one written by \"docker save\" or\n" +
			"\"podman save\", optionally gzipped. FILE - is standard input.",
		Example: "  berth image import torch.tar\n  ssh head1 cat torch.tar.gz | berth image import - --name lab.example.org/torch:2.9",
		Args:    console.OneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := e.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			return o.on(cmd.Context(), func(s ImageStore) error {
				list, err := s.Import(cmd.Context(), in, name)
				for _, img := range list {
					sayImage(e, "imported", img)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`NAME` for the archive's single image, as registry/repository:tag")
	return cmd
}

func newImagePruneCmd(e *console.Env, o *imageOptions) *cobra.Command {
	var yes bool
	var unused time.Duration
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete images that no job uses",
		Long: "Delete images that no job on this node uses and that have not been used for some time. The agent does\n" +
			"so by itself when containerd's disk is 85 % full.",
		Example: "  berth image prune --yes\n  berth image prune --unused 720h --yes",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if unused < 0 {
				return console.Usagef("--unused %s: want 0 or more, as 24h", unused)
			}
			if err := console.Confirm(e, yes, fmt.Sprintf("Delete every image that no job uses and that has not been used for %s?", unused)); err != nil {
				return err
			}
			return o.on(cmd.Context(), func(s ImageStore) error {
				list, err := s.Prune(cmd.Context(), unused)
				var sum int64
				for _, img := range list {
					sayImage(e, "deleted", img)
					sum += img.Bytes
				}
				e.Printf("%d images deleted, %s\n", len(list), console.BytesText(sum))
				return err
			})
		},
	}
	cmd.Flags().DurationVar(&unused, "unused", 24*time.Hour, "only images not used for this long")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}
