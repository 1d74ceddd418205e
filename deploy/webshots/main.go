// Command webshots takes the pictures of docs/web.md: it opens a link of berth web in a
// headless chromium, and writes the overview, the page of a job and a comparison of policies as
// PNG.
//
//	go run ./deploy/webshots -link "$(berth web -o name)" -job 3 -out docs
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

func main() {
	link := flag.String("link", "", "what berth web -o name printed")
	job := flag.String("job", "1", "the `id` of the job whose page is shown")
	out := flag.String("out", "docs", "the `folder` for the pictures")
	flag.Parse()
	if err := run(*link, *job, *out); err != nil {
		fmt.Fprintln(os.Stderr, "webshots:", err)
		os.Exit(1)
	}
}

func run(link, job, out string) error {
	base, _, ok := strings.Cut(link, "/#in=")
	if !ok {
		return fmt.Errorf("-link %q: is no link of berth web", link)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(link), chromedp.WaitVisible(".cell")); err != nil {
		return err
	}
	for name, at := range map[string]struct {
		page, wait string
		height     int64
		then       []chromedp.Action[chromedp.Void]
	}{
		"web-overview.png": {"overview", ".cards li", 600, nil},
		"web-job.png":      {"job/" + job, "dl", 1700, nil},
		"web-whatif.png": {"whatif", "#policy", 700, []chromedp.Action[chromedp.Void]{
			chromedp.SetValue("#policy", "lucid"), chromedp.Click("main button"), chromedp.WaitVisible(".bars"),
		}},
	} {
		steps := []chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(1000, at.height), chromedp.Navigate("about:blank"), chromedp.Navigate(base + "/#/" + at.page), chromedp.WaitVisible(at.wait)}
		if err := chromedp.Do(ctx, append(append(steps, at.then...), chromedp.Sleep(2*time.Second))...); err != nil {
			return fmt.Errorf("%s: %w", at.page, err)
		}
		shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = write(filepath.Join(out, name), shot)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at.page, err)
		}
	}
	return nil
}

// write compresses a picture better than browsers do: in its 256 most frequent colours.
func write(path string, shot []byte) error {
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return err
	}
	counts := map[color.Color]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			counts[img.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(p, q color.Color) int { return counts[q] - counts[p] })
	few := image.NewPaletted(b, colours[:min(256, len(colours))])
	draw.Draw(few, b, img, b.Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644) // #nosec G306 -- a picture for all
}
