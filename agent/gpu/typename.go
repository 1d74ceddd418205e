package gpu

import "strings"

// NormalizeType turns a driver's product name into the type name used in
// queues, specs and tables: the vendor's and the family's words are dropped,
// the rest is joined by "-".
//
//	"NVIDIA A100-SXM4-80GB"    → "A100-SXM4-80GB"
//	"Tesla T4"                 → "T4"
//	"NVIDIA GeForce RTX 3090"  → "RTX-3090"
//	"NVIDIA RTX A6000"         → "A6000"
//	"NVIDIA H100 80GB HBM3"    → "H100-SXM5-80GB"
//
// It is idempotent. Agents and coordinators must agree on it, so it goes by
// the same rules as the table of GPU characteristics on the other side.
func NormalizeType(name string) string {
	if t, ok := marketing[strings.Join(strings.Fields(strings.ToUpper(name)), " ")]; ok {
		return t
	}
	words := strings.FieldsFunc(name, func(r rune) bool {
		return r == ' ' || r == '\t' || r == '_' || r == '/'
	})
	for len(words) > 1 && dropped(words[0]) {
		words = words[1:]
	}
	// Workstation cards say "RTX A6000"; consumer cards say "RTX 3090", where
	// the number alone would mean nothing.
	if len(words) > 1 && strings.EqualFold(words[0], "RTX") && isAmpereWorkstation(words[1]) {
		words = words[1:]
	}
	if n := len(words); n > 1 && strings.EqualFold(words[n-1], "Generation") {
		words = words[:n-1]
	}
	return strings.Join(words, "-")
}

// marketing holds the names whose form factor the driver does not say in the
// usual way.
var marketing = map[string]string{
	"NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",
	"NVIDIA A100 80GB PCIE": "A100-PCIE-80GB",
	"NVIDIA H100 PCIE":      "H100-PCIE-80GB",
}

func dropped(w string) bool {
	switch strings.ToUpper(w) {
	case "NVIDIA", "TESLA", "GEFORCE", "QUADRO":
		return true
	}
	return false
}

// isAmpereWorkstation reports whether w looks like A2000, A4000, A6000, …
func isAmpereWorkstation(w string) bool {
	if len(w) != 5 || (w[0] != 'A' && w[0] != 'a') {
		return false
	}
	return strings.Trim(w[1:], "0123456789") == ""
}
