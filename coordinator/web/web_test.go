package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

const alice, bob, root = 1001, 1002, 2000

// visitor is a browser without a screen.
type visitor struct {
	t                   *testing.T
	base, cookie, token string
}

// link asks for a link as a user.
func link(t *testing.T, c *coordtest.Cluster, i int, uid uint32) string {
	t.Helper()
	r, err := apirpc.NewWebServiceClient(c.Dial(i, "gate", "g")).CreateLink(coordtest.As(t.Context(), uid), &apiv1.CreateLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Url
}

func secretOf(url string) string { return url[strings.Index(url, "#in=")+4:] }

// visit lets a user in at coordinator i.
func visit(t *testing.T, c *coordtest.Cluster, i int, uid uint32) *visitor {
	t.Helper()
	v := &visitor{t: t, base: "http://" + c.WebAddr(i)}
	resp, body := v.do("POST", "/login", fmt.Sprintf(`{"link":%q}`, secretOf(link(t, c, i, uid))))
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Fatalf("login: %s %s", resp.Status, body)
	}
	ck := resp.Cookies()[0]
	if !ck.HttpOnly || ck.SameSite != http.SameSiteStrictMode || ck.Domain != "" || ck.Path != "/" {
		t.Errorf("the cookie is %v", ck)
	}
	var me struct{ Token string }
	if err := json.Unmarshal([]byte(body), &me); err != nil || me.Token == "" {
		t.Fatalf("me: %s, %v", body, err)
	}
	v.cookie, v.token = ck.Name+"="+ck.Value, me.Token
	return v
}

// do asks as the page does; change may make something else of the request.
func (v *visitor) do(method, path, body string, change ...func(*http.Request)) (*http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if method != "GET" {
		req.Header.Set("Origin", v.base)
	}
	req.Header.Set("Cookie", v.cookie)
	req.Header.Set("Berth-Token", v.token)
	for _, f := range change {
		f(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp, string(data)
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func (v *visitor) wants(code int, words, method, path, body string, change ...func(*http.Request)) {
	v.t.Helper()
	resp, got := v.do(method, path, body, change...)
	if resp.StatusCode != code || !strings.Contains(got, words) {
		v.t.Errorf("%s %s: %d %.300s, want %d and %q", method, path, resp.StatusCode, got, code, words)
	}
	for _, h := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"} {
		if resp.Header.Get(h) == "" {
			v.t.Errorf("%s %s lacks %s", method, path, h)
		}
	}
}

// TestStrangers is what those are told who may not, each in words.
func TestStrangers(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	v := visit(t, c, 0, alice)
	nobody := &visitor{t: t, base: v.base}
	const list = "/api/JobService/ListJobs"
	v.wants(200, "index", "POST", list, "{}")
	v.wants(421, "does not answer to the name", "GET", "/", "", func(r *http.Request) { r.Host = "evil.example" })
	v.wants(421, "listen.web_names", "POST", list, "{}", func(r *http.Request) { r.Host = "127.0.0.1.evil.example:80" })
	v.wants(403, "another site", "POST", list, "{}", with("Origin", "http://evil.example"))
	v.wants(403, "another site", "POST", list, "{}", with("Origin", "null"))
	v.wants(403, "another site", "GET", "/api/me", "", with("Sec-Fetch-Site", "cross-site"))
	v.wants(403, "another site", "GET", "/api/watch", "", with("Sec-Fetch-Site", "same-site"))
	v.wants(403, "does not say which page", "POST", list, "{}", with("Origin", ""))
	v.wants(403, "token", "POST", list, "{}", with("Berth-Token", ""))
	v.wants(403, "token", "POST", list, "{}", with("Berth-Token", v.token+"x"))
	v.wants(404, "does not call", "POST", "/api/ClusterService/CreateToken", "{}")
	v.wants(404, "does not call", "POST", "/api/JobService/SubmitJobs", "{}")
	v.wants(400, "ListJobs", "POST", list, `{"nonsense":1}`)
	v.wants(413, "64 KiB", "POST", list, `{"pageToken":"`+strings.Repeat("x", 70<<10)+`"}`)
	v.wants(404, "", "GET", "/static/..%2fweb.go", "")
	v.wants(405, "", "PUT", list, "{}")
	nobody.wants(200, "<!doctype html>", "GET", "/", "")
	nobody.wants(401, "not logged in", "GET", "/api/me", "")
	nobody.wants(401, "berth web", "POST", list, "{}")
	nobody.wants(401, "not logged in", "GET", "/api/watch", "")
	nobody.wants(401, "another cluster", "GET", "/api/me", "", with("Cookie", "berth-lab-c1=lab/c1/x"))
	nobody.wants(401, "berth web", "POST", "/login", `{"link":"guess"}`)
	nobody.wants(400, "not a link", "POST", "/login", `x`)
	v.wants(200, "{}", "POST", "/logout", "{}")
	v.wants(401, "has ended", "GET", "/api/me", "")
}

// TestLinks: each works once, at its coordinator, and jobs get none.
func TestLinks(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Web: true, Steady: true})
	once := secretOf(link(t, c, 0, alice))
	nobody := &visitor{t: t, base: "http://" + c.WebAddr(0)}
	beside := &visitor{t: t, base: "http://" + c.WebAddr(1)}
	beside.wants(401, "not for coordinator c2", "POST", "/login", fmt.Sprintf(`{"link":%q}`, once))
	nobody.wants(200, "u1001", "POST", "/login", fmt.Sprintf(`{"link":%q}`, once))
	nobody.wants(401, "has been used", "POST", "/login", fmt.Sprintf(`{"link":%q}`, once))
	v := visit(t, c, 0, alice)
	beside.wants(401, `logged in at coordinator \"c1\"`, "GET", "/api/me", "", with("Cookie", v.cookie))
	beside.wants(401, "restarted", "GET", "/api/me", "", with("Cookie", strings.ReplaceAll(v.cookie, "c1", "c2")))
	for i := range 3 { // followers answer as the leader does
		visit(t, c, i, bob).wants(200, "index", "POST", "/api/JobService/ListJobs", "{}")
	}
	_, err := apirpc.NewWebServiceClient(c.Dial(0, "agent", "n1")).CreateLink(coordtest.As(t.Context(), alice), &apiv1.CreateLinkRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a node gets a link for a user: %v", err)
	}
	without := coordtest.Start(t, coordtest.Options{N: 1})
	_, err = apirpc.NewWebServiceClient(without.Client(0)).CreateLink(t.Context(), &apiv1.CreateLinkRequest{})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "listen.web") {
		t.Errorf("where there is no page: %v", err)
	}
}

// submit submits a job of a user that waits for a card.
func submit(t *testing.T, cc *grpc.ClientConn, uid uint32, specs ...*apiv1.JobSpec) []uint64 {
	t.Helper()
	r, err := apirpc.NewJobServiceClient(cc).SubmitJobs(coordtest.As(t.Context(), uid), &apiv1.SubmitJobsRequest{RequestId: fmt.Sprintf("%016d", time.Now().UnixNano()), Jobs: specs})
	if err != nil {
		t.Fatal(err)
	}
	return r.Ids
}

func spec(name string) *apiv1.JobSpec {
	return &apiv1.JobSpec{Name: name, Command: [][]byte{[]byte("/bin/secret-program"), []byte("--key")}, Dir: []byte("/"), Gpus: 1, GpuMemMib: 2000, GpuUtilMilli: 300}
}

// TestOnlyOnesOwn: the page shows and ends what the command line would, and no more.
func TestOnlyOnesOwn(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	ids := submit(t, c.Dial(0, "gate", "g"), alice, spec("hers"))
	job := fmt.Sprintf(`{"id":"%d"}`, ids[0])
	cancel := func(k int) string { return fmt.Sprintf(`{"requestId":"%032d","ids":["%d"]}`, k, ids[0]) }
	hers, his, admin := visit(t, c, 0, alice), visit(t, c, 0, bob), visit(t, c, 0, root)
	if _, got := hers.do("POST", "/api/JobService/GetJob", job); !strings.Contains(got, `"command"`) {
		t.Errorf("she sees of her own job %s", got)
	}
	if _, got := admin.do("POST", "/api/JobService/GetJob", job); !strings.Contains(got, `"command"`) {
		t.Errorf("an administrator sees %s", got)
	}
	if _, got := his.do("POST", "/api/JobService/GetJob", job); strings.Contains(got, `"command"`) || !strings.Contains(got, "hers") {
		t.Errorf("he sees of her job %s", got)
	}
	his.wants(200, "CANCEL_OUTCOME_DENIED", "POST", "/api/JobService/CancelJobs", cancel(1))
	hers.wants(403, "token", "POST", "/api/JobService/CancelJobs", cancel(2), with("Berth-Token", his.token))
	hers.wants(200, "CANCEL_OUTCOME_CANCELLED", "POST", "/api/JobService/CancelJobs", cancel(3))
}

// stream opens a live stream until leave is called.
func (v *visitor) stream(path string) (resp *http.Response, leave func()) {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", v.base+path, nil)
	req.Header.Set("Cookie", v.cookie)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp, func() { cancel(); resp.Body.Close() }
}

// TestStreams: one user has so many and takes none of another's, changes arrive, and a
// stream ends with its session.
func TestStreams(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	v := visit(t, c, 0, alice)
	var leaves []func()
	for range 16 {
		resp, leave := v.stream("/api/watch?from=1")
		if leaves = append(leaves, leave); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	v.wants(429, "16 live pages", "GET", "/api/watch?from=1", "")
	his := visit(t, c, 0, bob)
	resp, leave := his.stream("/api/watch?from=1")
	defer leave()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("another user's: %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	next := func(words string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), words) {
				return
			}
		}
		t.Fatalf("the stream ended without %q", words)
	}
	next("retry")
	submit(t, c.Dial(0, "gate", "g"), alice, spec("fresh"))
	next("fresh")
	for _, leave := range leaves[:1] {
		leave()
	}
	for { // its place is free once the server has seen that it went
		resp, leave := v.stream("/api/watch?from=1")
		leave()
		if resp.StatusCode == http.StatusOK {
			break
		}
	}
	his.wants(200, "{}", "POST", "/logout", "{}")
	next("event: over")
	for _, leave := range leaves {
		leave()
	}
	v.wants(400, "not a position", "GET", "/api/watch?from=x", "")
	v.wants(400, "job", "GET", "/api/log?job=x", "")
}
