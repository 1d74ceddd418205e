package gpu

import "strings"

// NormalizeType converts a driver's product name to the type name used in queues, specs and
// tables: upper case, without the vendor's and family's words, the rest joined by "-".
//
//	"NVIDIA A100-SXM4-80GB"    → "A100-SXM4-80GB"
//	"Tesla T4"                 → "T4"
//	"NVIDIA GeForce RTX 3090"  → "RTX-3090"
//	"NVIDIA RTX A6000"         → "A6000"
//	"NVIDIA H100 80GB HBM3"    → "H100-SXM5-80GB"
//
// It is idempotent. Coordinators look types up in a table of their own, which spells what a
// driver prints in the same way.
func NormalizeType(name string) string {
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool {
		return r == ' ' || r == '\t' || r == '_' || r == '-'
	})
	for len(words) > 1 && dropped(words[0]) {
		words = words[1:]
	}
	n := strings.Join(words, "-")
	if typ, ok := driverNames[n]; ok {
		return typ
	}
	return n
}

// dropped reports whether w says nothing about the type. "QUADRO" does: a Quadro RTX 6000
// is two generations older than an RTX 6000 Ada.
func dropped(w string) bool { return w == "NVIDIA" || w == "TESLA" || w == "GEFORCE" }

// driverNames maps what drivers print to the type's name where they differ: the form factor
// left out, or meaningless words.
var driverNames = map[string]string{
	"A100-80GB-PCIE":          "A100-PCIE-80GB",
	"GH200-480GB":             "GH200-96GB",
	"H100-80GB-HBM3":          "H100-SXM5-80GB",
	"H100-NVL":                "H100-NVL-94GB",
	"H100-PCIE":               "H100-PCIE-80GB",
	"RTX-6000-ADA-GENERATION": "RTX-6000-ADA",
	"RTX-A4000":               "A4000",
	"RTX-A5000":               "A5000",
	"RTX-A6000":               "A6000",
	"RTX-PRO-6000-BLACKWELL-MAX-Q-WORKSTATION-EDITION": "RTX-PRO-6000-MAXQ",
}
