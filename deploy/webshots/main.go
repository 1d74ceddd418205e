// Command webshots takes the pictures of docs/web.md: it opens a link of berth web in a
// chromium without a screen, and writes the overview and the page of a job as PNG.
//
//	go run ./deploy/webshots -link "$(berth web -o name)" -job 3 -out docs
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

func main() {
	link := flag.String("link", "", "what berth web -o name printed")
	job := flag.String("job", "1", "the `id` of the job whose page is shown")
	out := flag.String("out", "docs", "the `folder` for web-overview.png and web-job.png")
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
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1100, 700), chromedp.Navigate(link), chromedp.WaitVisible(".cell")); err != nil {
		return err
	}
	for name, at := range map[string]struct{ page, wait string }{"web-overview.png": {"overview", ".cards li"}, "web-job.png": {"job/" + job, "dl"}} {
		steps := []chromedp.Action[chromedp.Void]{chromedp.Navigate("about:blank"), chromedp.Navigate(base + "/#/" + at.page), chromedp.WaitVisible(at.wait), chromedp.Sleep(2 * time.Second)}
		if err := chromedp.Do(ctx, steps...); err != nil {
			return fmt.Errorf("%s: %w", at.page, err)
		}
		png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return fmt.Errorf("%s: %w", at.page, err)
		}
		if err := os.WriteFile(filepath.Join(out, name), png, 0o644); err != nil { // #nosec G306 -- a picture for all
			return err
		}
	}
	return nil
}
