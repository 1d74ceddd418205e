package web_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// patience is when a page has failed, on any machine.
const patience = 5 * time.Minute

// browser is a real one without a screen.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// The colour schemes that a browser asks pages for, by their numbers in its settings.
const dark, light = 0, 1

// chromiums are what the tests share, one for each scheme: to start one takes as much as to test
// most pages.
var chromiums [2]struct {
	sync.Once
	ctx context.Context
	end func()
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	for i := range chromiums {
		if end := chromiums[i].end; end != nil {
			end()
		}
	}
	os.Exit(code)
}

// newBrowser opens a window that nothing is shared with but the program, and that ends with the test.
func newBrowser(t *testing.T, scheme int) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium on this machine: the page is not looked at in a browser")
	}
	c := &chromiums[scheme]
	c.Do(func() {
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900),
			chromedp.Flag("blink-settings", fmt.Sprintf("preferredColorScheme=%d", scheme)), chromedp.Flag("enable-blink-features", "ComputedAccessibilityInfo"))
		if os.Getuid() == 0 {
			opts = append(opts, chromedp.NoSandbox)
		}
		c.ctx, c.end = chromedp.NewExecAllocator(context.Background(), opts...)
		c.ctx, _ = chromedp.NewContext(c.ctx)
		c.err = chromedp.Do(c.ctx)
	})
	if c.err != nil {
		t.Fatal(c.err)
	}
	ctx, cancel := chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	b.run(chromedp.Navigate("about:blank"))
	return b
}

func (b *browser) run(acts ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, acts...); err != nil {
		b.t.Fatal(err)
	}
}

// open goes to a page anew, as who types its address: from another page of the same site, since
// a browser begins a process for each change of sites.
func (b *browser) open(page string) {
	b.t.Helper()
	u, err := url.Parse(page)
	if err != nil {
		b.t.Fatal(err)
	}
	b.run(chromedp.Navigate("http://"+u.Host+"/static/api.js"), chromedp.Navigate(page))
}

// until waits in the page until a condition is true.
func (b *browser) until(cond string) {
	b.t.Helper()
	js := "new Promise(r => { const f = () => (" + cond + ") ? r(true) : setTimeout(f, 10); f(); })"
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](js, chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatalf("%s: %v; %s says %q", cond, err, b.text("location.href"), b.text("document.body.innerText.slice(0, 400) + performance.getEntriesByType('resource').map(e => '\\n' + e.name + ' ' + Math.round(e.startTime) + ' ' + Math.round(e.duration)).join('')"))
	}
}

// text is what an expression is in the page, once it is there.
func (b *browser) text(js string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("(async () => String(await ("+js+")))()", chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Error(err)
	}
	return out
}

func (b *browser) says(words string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector('main').innerText.includes(%q)", words))
}

// many submits jobs of alice's that wait for cards.
func many(t *testing.T, c *coordtest.Cluster, n int) (first uint64) {
	t.Helper()
	cc := c.Dial(0, "gate", "g")
	for n > 0 {
		var specs []*apiv1.JobSpec
		for i := range min(n, 1000) {
			specs = append(specs, spec(fmt.Sprintf("train-%05d", n-i)))
		}
		ids := submit(t, cc, alice, specs...)
		n -= len(specs)
		if first == 0 {
			first = ids[0]
		}
	}
	return first
}

// TestPagesWithManyJobs: what is drawn does not grow with the jobs that there are.
func TestPagesWithManyJobs(t *testing.T) {
	b, n := newBrowser(t, light), 1_000
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	first := fmt.Sprint("job/", many(t, c, n))
	base := "http://" + c.WebAddr(0)
	b.open(link(t, c, 0, alice))
	b.says("waiting")
	count := fmt.Sprintf("%d jobs", n)
	for page, shown := range map[string]string{"overview": "document.querySelector('main table')", "jobs": "document.querySelector('main').innerText.includes(" + fmt.Sprintf("%q", count) + ") && document.querySelectorAll('main tbody tr').length > 0"} {
		b.open(base + "/#/" + page)
		b.until(shown)
		took := b.text("Math.round(performance.now())")
		t.Logf("%s with %d jobs stands %s ms after the browser began to load it", page, n, took)
		if rows := b.text("document.querySelectorAll('main tbody tr').length > 0 && document.querySelectorAll('main tbody tr').length <= 100"); rows != "true" {
			t.Errorf("%s draws %s rows", page, b.text("document.querySelectorAll('main tbody tr').length"))
		}
	}
	b.open(base + "/#/jobs")
	b.says(count)
	b.run(chromedp.SendKeys("#find", "train-00042"))
	b.says("1 job")
	for _, page := range []string{"nodes", "accounts", "admin"} {
		b.open(base + "/#/" + page)
		b.until("document.querySelector('main table') || document.querySelector('main h2')")
		if wrong := b.text("document.getElementById('banner').textContent"); wrong != "" {
			t.Errorf("%s says %q", page, wrong)
		}
	}
	for _, page := range []string{"overview", "jobs", "nodes", "accounts", "admin", first} {
		b.open(base + "/#/" + page)
		b.until("document.querySelector('main h2, main table, main dl')")
		for _, width := range []int64{360, 1280} {
			b.run(chromedp.EmulateViewport(width, 800))
			if over := b.text("document.documentElement.scrollWidth - innerWidth"); strings.TrimLeft(over, "-0123456789") != "" || !strings.HasPrefix(over, "-") && over != "0" {
				t.Errorf("%s is %s pixels wider than a screen of %d", page, over, width)
			}
		}
	}
}

// TestHostileText: what jobs are called and write is text, whatever it looks like.
func TestHostileText(t *testing.T) {
	b := newBrowser(t, light)
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	const name = `<img src=x onerror="window.hit=1"><svg onload=window.hit=1>`
	bad := spec(name)
	bad.Command = append(bad.Command, []byte("\x1b]0;owned\a\xff<b>"))
	bad.Array, bad.Study = "0", &apiv1.Study{Metric: "loss", Space: []*apiv1.Axis{{Name: "w", Kind: "values", Values: []string{"<img src=y onerror=window.hit=1>"}}}}
	id := submit(t, c.Dial(0, "gate", "g"), alice, bad)[0]
	asg := <-a.Assigned
	a.Report(asg, nodev1.AttemptState_ATTEMPT_STATE_RUNNING, 0)
	for step, loss := range []float64{0.75, 0.25, 0.5} {
		a.Heartbeat(&nodev1.AttemptUse{Job: asg.Job, Attempt: asg.Attempt, Steps: &nodev1.Steps{Step: int64(step), Metric: &loss}})
	}
	b.open(link(t, c, 0, alice))
	base := "http://" + c.WebAddr(0)
	for _, page := range []string{"jobs", fmt.Sprintf("job/%d", id)} {
		b.open(base + "/#/" + page)
		b.says(name)
		if b.text("window.hit") != "undefined" || b.text("document.querySelectorAll('main img, main script, main svg:not(.curve)').length") != "0" {
			t.Errorf("%s reads a name as HTML", page)
		}
	}
	b.says("w=<img src=y onerror=window.hit=1>")
	b.says("loss: 0.5 at step 2, from 0.25 to 0.75 since step 0")
	v := <-a.Visits
	for v.Open.GetSeries() != nil { // of what its card showed
		v = <-a.Visits
	}
	end := a.Answer(t.Context(), v.Id)
	send := func(at int64, data string) {
		chunk := &apiv1.LogChunk{Offset: at, Data: []byte(data)}
		if err := end.Send(&nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Frame{Frame: &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Log{Log: chunk}}}}); err != nil {
			t.Fatal(err)
		}
	}
	send(0, "\x1b[31mred\x1b[0m <script>window.hit=1</script>\n\x1b]0;title\x07after\n10%\r20%\rdone\nbell\x07 \xe2\x80\xae"+"abc\ncut \xe2")
	send(90, "\x82\xac sign\n")
	want := "red <script>window.hit=1</script>\nafter\ndone\nbell\u2407 \ufffdabc\ncut € sign"
	b.until(fmt.Sprintf("document.getElementById('log').textContent === %q", want))
	if b.text("window.hit") != "undefined" {
		t.Error("the log is read as HTML")
	}
}

// TestCancel: one's own job ends by the button, and another's has none and is refused.
func TestCancel(t *testing.T) {
	b := newBrowser(t, light)
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	cc := c.Dial(0, "gate", "g")
	mine, other := submit(t, cc, alice, spec("mine"))[0], submit(t, cc, bob, spec("his"))[0]
	base := "http://" + c.WebAddr(0)
	b.open(link(t, c, 0, alice))
	b.says("waiting")
	b.open(fmt.Sprintf("%s/#/job/%d", base, other))
	b.says("u1002")
	if b.text("document.getElementById('cancel')") != "null" {
		t.Error("another's job has a button to end it")
	}
	refused := fmt.Sprintf(`import('/static/api.js').then(async m => (await m.call('JobService/CancelJobs', {requestId: m.requestID(), ids: ['%d']})).results[0].outcome)`, other)
	if outcome := b.text(refused); outcome != "CANCEL_OUTCOME_DENIED" {
		t.Errorf("the end of another's job: %s", outcome)
	}
	b.open(fmt.Sprintf("%s/#/job/%d", base, mine))
	b.run(chromedp.Click("#cancel"), chromedp.Click("#yes"))
	b.says("cancelled")
}

// TestLeaderKilled: a page goes on at a coordinator that follows, and at one that is gone
// it says so.
func TestLeaderKilled(t *testing.T) {
	onFollower, onLeader := newBrowser(t, light), newBrowser(t, light)
	c := coordtest.Start(t, coordtest.Options{N: 3, Web: true})
	lead := c.Leader()
	other := (lead + 1) % 3
	onFollower.open(link(t, c, other, alice))
	onLeader.open(link(t, c, lead, alice))
	for _, b := range []*browser{onFollower, onLeader} {
		b.says("waiting")
		b.text("location.hash = '#/jobs'")
		b.says("0 jobs")
	}
	c.Kill(lead)
	onLeader.until(fmt.Sprintf("document.getElementById('banner').textContent.includes('coordinator c%d') && document.getElementById('banner').textContent.includes('berth web')", lead+1))
	cc := c.Dial(c.Leader(), "gate", "g")
	submit(t, cc, alice, spec("after-the-leader"))
	onFollower.says("after-the-leader")
}

// TestWhatIfPage: by the keyboard alone a policy is chosen and compared, and what came of it
// stands in a table and for those who do not see the bars.
func TestWhatIfPage(t *testing.T) {
	b, sim := newBrowser(t, light), &simulator{}
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true, Simulate: sim.run})
	ended(t, c, c.Agent(0, "n1", "b1", coordtest.T4("GPU-1")), "hers")
	b.open(link(t, c, 0, bob))
	b.says("waiting")
	for _, width := range []int64{360, 1280} {
		b.run(chromedp.EmulateViewport(width, 800))
		b.open("http://" + c.WebAddr(0) + "/#/whatif")
		b.until("document.getElementById('policy')")
		if out := b.text("document.querySelector('output').textContent + document.getElementById('days').getAttribute('aria-valuetext') + document.getElementById('days').max"); out != "dayday1" {
			t.Errorf("the slider says %q", out)
		}
		b.run(chromedp.Focus("#policy"), chromedp.KeyEvent("slo"), chromedp.Focus("main button"), chromedp.KeyEvent("\r"))
		b.says("Nine in ten wait no longer than")
		for _, words := range []string{"ffd, in force", "slot", "1 of 1", "Note: a note."} {
			b.says(words)
		}
		if label := b.text("document.querySelector('.bars').getAttribute('aria-label')"); !strings.Contains(label, "As it happened: 00:03:20, of which 00:01:40 waiting; ffd, in force: 00:02:30") || !strings.Contains(label, "; slot: 00:02:30") {
			t.Errorf("the bars say %q", label)
		}
		if over := b.text("document.documentElement.scrollWidth <= innerWidth"); over != "true" {
			t.Errorf("it is wider than a screen of %d", width)
		}
	}
	if n := sim.runs.Load(); n != 2 {
		t.Errorf("%d simulations ran, want 2", n)
	}
}

// TestServiceInWords: why a service has so many replicas and what is to be expected stands
// there, and nothing of one whose load does not scale it; what is measured stands beside what
// was promised, and nothing that is not known.
func TestServiceInWords(t *testing.T) {
	b := newBrowser(t, light)
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	b.open(link(t, c, 0, alice))
	b.says("waiting")
	for replica, want := range map[string]string{
		`{want: 2}`: "",
		`{want: 2, loadKnown: '2100s', wantWhy: 'its load asks for 2'}`:                                                                                             "wants 2: its load asks for 2, no forecast yet, the load of 00:35:00 is known",
		`{want: 3, loadKnown: '604800s', wantWhy: 'its load asks for 2, the forecast for 3', forecast: 11.26, forecastAt: '2026-03-01T09:05:00Z', forecastWant: 3}`: "wants 3: its load asks for 2, the forecast for 3, forecast 11.3 from 09:05Z on, which needs 3",
		`{want: 1, noForecast: true}`: "no forecast",
		`{want: 1, loadKnown: '604800s', forecast: 0, forecastAt: '2026-03-01T09:05:00Z'}`: "forecast 0.0 from 09:05Z on, which needs 0",
	} {
		if got := b.text("import('/static/services.js').then(m => m.forecast(" + replica + "))"); got != want {
			t.Errorf("%s: %q, want %q", replica, got, want)
		}
	}
	for replica, want := range map[string]string{
		`{}`:                 "",
		`{slo: 'p99=200ms'}`: "objective p99=200ms",
		`{slo: 'p99=200ms', measured: '0.150s', asked: 1000, within: 992, rate: 12.34, inFlight: 0}`: "objective p99=200ms, now 150 ms, 99.2 % within of 1000 requests of the last hour, 12.3 requests a second, 0 in flight",
		`{slo: 'p50=1s', asked: 4}`: "objective p50=1s, 0.0 % within of 4 requests of the last hour",
		`{rate: 0}`:                 "0.0 requests a second",
	} {
		if got := b.text("import('/static/services.js').then(m => m.objective(" + replica + "))"); got != want {
			t.Errorf("%s: %q, want %q", replica, got, want)
		}
	}
}

// TestCurvesOfDays: curves of more than an hour are broken where samples lack, tell both
// dates, and show what of the card's memory the job was given.
func TestCurvesOfDays(t *testing.T) {
	b := newBrowser(t, light)
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	id := submit(t, c.Dial(0, "gate", "g"), alice, spec("days"))[0]
	a.Report(<-a.Assigned, nodev1.AttemptState_ATTEMPT_STATE_RUNNING, 0)
	b.open(link(t, c, 0, alice))
	b.says("Overview")
	b.text(`(() => {
		const ask = window.fetch, now = Math.floor(Date.now() / 1000), at = [];
		for (let t = now - 3 * 86400 - (now % 300); t < now; t += t < now - 3600 ? 300 : 10) if (t < now - 2 * 86400 || t > now - 86400) at.push(t);
		const all = (v) => at.map(() => v);
		window.fetch = async (path, init) => String(path).includes('GetSeries') ? new Response(JSON.stringify({stepSeconds: 10, gpus: [{type: 'T4', node: 'n1', memMib: '16384', at: at.map(String), usedMib: all('8192'), utilMilli: all(500), powerW: all(60)}]})) : ask(path, init);
		location.hash = '#/job/` + strconv.FormatUint(id, 10) + `';
		return 'done';
	})()`)
	b.says("are given to this job (dashed)")
	if n := b.text("String(document.querySelectorAll('svg.curve path.held').length)"); n != "1" {
		t.Errorf("%s curves say what the job was given", n)
	}
	if d := b.text("document.querySelector('svg.curve path:not(.held)').getAttribute('d')"); strings.Count(d, "M") != 2 {
		t.Errorf("a day without samples is no break: %s", d)
	}
	if heads := b.text("String([...document.querySelectorAll('h3')].some((h) => h.textContent.includes(' to ' + new Date().toLocaleDateString())))"); heads != "true" {
		t.Errorf("the head tells no date of the end: %s", b.text("document.querySelector('h3').textContent"))
	}
}
