package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestWhatIf: a user opens the page by a link, and the coordinator has berth-lab run the jobs
// that ended again under another policy; all of them complete there as well. What commands print
// goes through an expression of jq, which another program reads.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "1", "--nodes", "1x2xA100-SXM4-80GB")
	dir := openDir(t)
	var ids []uint64
	for range 4 {
		ids = append(ids, c.submit("-D", dir, "--gpus", "1", "--gpu-mem", "20GiB", "--", "sleep", "1"))
	}
	for _, id := range ids {
		c.await(id, "COMPLETED")
	}
	if got := c.run("show", fmt.Sprint(ids[0]), "--jq", `"\(.id) \(.state)"`); got != fmt.Sprintf("%d COMPLETED\n", ids[0]) {
		t.Errorf("show --jq: %q", got)
	}
	if r := c.runAs(1001, "queue", "--jq", ".[] | nope"); r.code != 2 || !strings.Contains(r.stderr, "nope/0 at character 7") {
		t.Errorf("a wrong expression: exit code %d: %s", r.code, r.stderr)
	}
	r := c.runAs(1001, "web", "-o", "name")
	base, secret, ok := strings.Cut(strings.TrimSpace(r.stdout), "/#in=")
	if !ok {
		t.Fatalf("no link: %s%s", r.stdout, r.stderr)
	}
	var cookie, token string
	post := func(path, body string) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", base)
		req.Header.Set("Cookie", cookie)
		req.Header.Set("Berth-Token", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for _, ck := range resp.Cookies() {
			cookie = ck.Name + "=" + ck.Value
		}
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, data
	}
	_, data := post("/login", `{"link":"`+secret+`"}`)
	var me struct{ Token string }
	if err := json.Unmarshal(data, &me); err != nil || me.Token == "" {
		t.Fatalf("%v: %s", err, data)
	}
	token = me.Token
	code, data := post("/api/whatif", `{"policy":"slot+sjf","shares":1,"days":1}`)
	var got struct {
		Jobs, Replayed  int
		Actual          struct{ Jobs int }
		InForce, Chosen struct {
			Policy    string
			Completed int
			Reserved  float64 `json:"reserved_mem_pct"`
		}
	}
	if err := json.Unmarshal(data, &got); err != nil || code != 200 {
		t.Fatalf("%d, %v: %s", code, err, data)
	}
	if got.Jobs != 4 || got.Replayed != 4 || got.Actual.Jobs != 4 || got.InForce.Completed != 4 || got.Chosen.Completed != 4 || got.Chosen.Policy != "slot+sjf" || got.Chosen.Reserved <= got.InForce.Reserved {
		t.Errorf("%s", data)
	}
	if code, data := post("/api/whatif", `{"policy":"best","days":1}`); code != 400 || !bytes.Contains(data, []byte("the policies are")) {
		t.Errorf("a policy that there is not: %d %s", code, data)
	}
}
