package fsm

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(tokenCmd("s1", agentRole, "n1", m.now.Add(time.Minute)))
	m.refused(cluster.CodeConflict, tokenCmd("s1", agentRole, "n1", m.now.Add(time.Hour)))
	var texts []string
	refuse := func(secret, id string) {
		t.Helper()
		texts = append(texts, m.refused(cluster.CodeUnauthenticated, useCmd(secret, id)).Msg)
	}
	refuse("s2", "n1") // wrong
	refuse("s1", "n2") // for another name
	r := m.must(useCmd("s1", "n1"))
	if r.Token == nil || *r.Token != (command.TokenInfo{Role: agentRole, ID: "n1"}) {
		t.Fatalf("token %v", r.Token)
	}
	refuse("s1", "n1") // used
	m.must(tokenCmd("s3", agentRole, "n1", m.now.Add(3*time.Second)))
	m.now = m.now.Add(time.Minute)
	refuse("s3", "n1") // expired
	m.must(tokenCmd("s4", agentRole, "n1", m.now.Add(time.Minute)))
	if n := m.f.st.keyring.Tokens(); n != 1 {
		t.Errorf("%d tokens are held, want only the one that is good", n)
	}
	m.must(denyCmd(agentRole, "n1"))
	refuse("s4", "n1") // for an identity that was denied since
	m.refused(cluster.CodeDenied, tokenCmd("s5", agentRole, "n1", m.now.Add(time.Minute)))
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("refusals tell the faults apart: %q and %q", text, texts[0])
		}
	}
}

func TestTokensAreChecked(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	short := tokenCmd("s", agentRole, "n1", m.now)
	short.GetCreateToken().Token.Hash = []byte{1}
	none := tokenCmd("s", agentRole, "n1", m.now)
	none.GetCreateToken().Token = nil
	m.refused(cluster.CodeInvalid, short)
	m.refused(cluster.CodeInvalid, none)
	m.refused(cluster.CodeInvalid, tokenCmd("s", "", "n1", m.now))
	m.refused(cluster.CodeInvalid, tokenCmd("s", "a/b", "n1", m.now))
	for i := range maxTokens {
		token := tokenCmd("s", agentRole, "n1", m.now.Add(time.Hour)).GetCreateToken().Token
		token.Hash = []byte(fmt.Sprint(i))
		if err := m.f.st.keyring.Load(&logv1.Record{Kind: &logv1.Record_Token{Token: token}}); err != nil {
			t.Fatal(err)
		}
	}
	m.refused(cluster.CodeExhausted, tokenCmd("s", agentRole, "n1", m.now.Add(time.Hour)))
}

func TestDenyIsForEver(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(denyCmd("gate", "login1"))
	was := contents(t, m.f)
	m.must(denyCmd("gate", "login1"))
	if contents(t, m.f) != was {
		t.Error("denied twice differs from once")
	}
	if !m.f.Denied("gate", "login1") || m.f.Denied("gate", "login2") || m.f.Denied(agentRole, "login1") {
		t.Error("the wrong identity is denied")
	}
	m.refused(cluster.CodeInvalid, denyCmd("", "x"))
	m.refused(cluster.CodeInvalid, denyCmd("x", ""))
	m.refused(cluster.CodeInvalid, denyCmd("a/b", "x"))
	m.refused(cluster.CodeInvalid, denyCmd("a", strings.Repeat("x", maxIdentity)))
}

func TestWeights(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if v, blob := m.f.Weights(); v != 0 || blob != nil {
		t.Fatalf("version %d before any", v)
	}
	m.refused(cluster.CodeConflict, weightsCmd(2, []byte("w")))
	m.refused(cluster.CodeConflict, weightsCmd(0, []byte("w")))
	m.refused(cluster.CodeInvalid, weightsCmd(1, nil))
	m.refused(cluster.CodeInvalid, weightsCmd(1, make([]byte, maxWeights+1)))
	wrong := weightsCmd(1, []byte("w"))
	wrong.GetPublishWeights().Sha256[0]++
	m.refused(cluster.CodeInvalid, wrong)
	big := bytes.Repeat([]byte{7}, maxWeights)
	m.must(weightsCmd(1, big))
	m.must(weightsCmd(2, []byte("second")))
	m.refused(cluster.CodeConflict, weightsCmd(2, []byte("w")))
	if v, blob := m.f.Weights(); v != 2 || string(blob) != "second" {
		t.Fatalf("version %d: %q", v, blob)
	}
}

func TestInitCluster(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if _, _, _, ok := m.f.Config(); ok {
		t.Fatal("a new log has a cluster")
	}
	m.refused(cluster.CodeInvalid, initCmd("", 1))
	m.refused(cluster.CodeInvalid, initCmd("c1", maxKeep+1))
	m.must(initCmd("c1", 5))
	m.must(initCmd("c1", 9)) // again with the same id: nothing
	m.refused(cluster.CodeConflict, initCmd("c2", 5))
	if id, name, keep, ok := m.f.Config(); id != "c1" || name != "lab" || keep != 5 || !ok {
		t.Errorf("config %q %q %d %t", id, name, keep, ok)
	}
}

func TestAllowAgain(t *testing.T) {
	m := newMachine(t)
	allow := denyCmd(agentRole, "n1")
	allow.GetDenyIdentity().Allow = true
	m.refused(cluster.CodeNotFound, allow)
	m.must(denyCmd(agentRole, "n1"))
	m.refused(cluster.CodeDenied, tokenCmd("s", agentRole, "n1", m.now.Add(time.Minute)))
	m.must(allow)
	if m.f.Denied(agentRole, "n1") || len(m.f.AllDenied()) != 0 {
		t.Error("it is denied still")
	}
	m.must(tokenCmd("s", agentRole, "n1", m.now.Add(time.Minute)))
	if got := NeedsVersion(allow); got != 11 {
		t.Errorf("version %d, want 11", got)
	}
}

// TestTokensOfAnOldStateAreVoid: one that was spent after a backup was made would
// work again after it is restored.
func TestTokensOfAnOldStateAreVoid(t *testing.T) {
	t.Parallel()
	m := everything(t)
	var state bytes.Buffer
	if err := m.f.Capture().Write(&state); err != nil {
		t.Fatal(err)
	}
	load := func(revival *Revival) *FSM {
		t.Helper()
		c, err := Load(bytes.NewReader(state.Bytes()), Options{}, revival)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := c.Write(&b); err != nil {
			t.Fatal(err)
		}
		f := New(Options{})
		if err := f.Restore(io.NopCloser(&b)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Capture().Hash, c.Hash) {
			t.Error("the hash is not the state's")
		}
		return f
	}
	if f := load(nil); f.st.keyring.Tokens() != 1 {
		t.Errorf("%d tokens as it is, want 1", f.st.keyring.Tokens())
	}
	if f := load(&Revival{}); f.st.keyring.Tokens() != 0 || !f.Denied("gate", "x/y") {
		t.Errorf("%d tokens in a cluster that begins again, or who was denied is not", f.st.keyring.Tokens())
	}
}
