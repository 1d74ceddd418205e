package tlsconf

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func testToken(t testing.TB) Token {
	t.Helper()
	tok, _, err := NewToken(testCA(t, "hpc"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTokenRoundTrip(t *testing.T) {
	ca := testCA(t, "hpc")
	tok, hash, err := NewToken(ca)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{tok.String(), "  " + tok.String() + "\r\n"} {
		got, err := ParseToken(text)
		if err != nil || got != tok {
			t.Fatalf("ParseToken(%q) = %v, %v", text, got, err)
		}
	}
	if tok.CAHash != ca.Hash() {
		t.Error("the token does not carry its CA's hash")
	}
	sent, err := HashSecret(tok.SecretText())
	if err != nil || !SameHash(sent, hash) || !SameHash(tok.Hash(), hash) {
		t.Errorf("hash of the secret as sent: %x, %v, want %x", sent, err, hash)
	}
	again, _, err := NewToken(ca)
	if err != nil || again.Secret == tok.Secret {
		t.Errorf("two tokens with one secret (%v)", err)
	}
}

func TestParseTokenErrors(t *testing.T) {
	good := testToken(t).String()
	parts := strings.Split(good, ".")
	for _, tc := range []struct{ name, in, text string }{
		{"empty", "", "does not begin with berth-join-v1."},
		{"only white space", " \n", "does not begin with"},
		{"other version", "berth-join-v2." + parts[1] + "." + parts[2], "does not begin with"},
		{"only the secret", parts[2], "does not begin with"},
		{"cut after the hash", parts[0] + "." + parts[1], "2 parts"},
		{"part added", good + ".x", "4 parts"},
		{"last character lost", good[:len(good)-1], "secret (third part) has 42 characters, want 43"},
		{"character added", good + "A", "44 characters"},
		{"hash empty", parts[0] + ".." + parts[2], "CA hash (second part) has 0 characters"},
		{"standard base64", parts[0] + "." + "+" + parts[1][1:] + "." + parts[2], "CA hash (second part) has a character"},
		{"line break inside", parts[0] + "." + parts[1] + "." + parts[2][:20] + "\n" + parts[2][21:], "third part"},
		// 43 characters hold 258 bits; the last two must be zero, so that no
		// two texts are one token.
		{"spare bits set", parts[0] + "." + parts[1] + "." + parts[2][:42] + "B", "third part"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseToken(tc.in)
			if !errors.Is(err, ErrBadToken) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v, want ErrBadToken with %q", err, tc.text)
			}
			if strings.Contains(err.Error(), parts[2][:20]) {
				t.Fatalf("the message repeats the secret: %v", err)
			}
		})
	}
	if _, err := HashSecret("short"); !errors.Is(err, ErrBadToken) {
		t.Errorf("HashSecret: %v, want ErrBadToken", err)
	}
}

func TestTokenIsNotLogged(t *testing.T) {
	tok := testToken(t)
	var buf bytes.Buffer
	logTo(&buf).Info("joining", "token", tok)
	if strings.Contains(buf.String(), tok.SecretText()) || strings.Contains(buf.String(), fmt.Sprint(tok.Secret[:4])) {
		t.Errorf("log shows the secret: %s", buf.String())
	}
}

func FuzzParseToken(f *testing.F) {
	good := testToken(f).String()
	f.Add(good)
	f.Add(good[:50])
	f.Add(strings.ToUpper(good))
	f.Add("berth-join-v1..")
	f.Add("berth-join-v1." + strings.Repeat("A", 43) + "." + strings.Repeat("A", 43))
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := ParseToken(s)
		if err != nil {
			if !errors.Is(err, ErrBadToken) {
				t.Fatalf("%q: %v is no ErrBadToken", s, err)
			}
			return
		}
		if tok.String() != strings.TrimSpace(s) {
			t.Fatalf("%q came back as %q: a token has two forms", s, tok.String())
		}
	})
}
