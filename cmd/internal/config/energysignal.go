package config

import (
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// EnergySignal says where the site publishes the price of power, or the
// carbon that it causes; see docs/power.md. It is off without a source.
type EnergySignal struct {
	// Source is an absolute path, or an http or https URL.
	Source string `yaml:"source"`
	// Unit is for people, such as EUR/kWh or gCO2/kWh.
	Unit string `yaml:"unit"`
	// Every is how often it is read.
	Every time.Duration `yaml:"every"`
}

// Web reports whether the source is a URL.
func (s *EnergySignal) Web() bool {
	return strings.HasPrefix(s.Source, "http://") || strings.HasPrefix(s.Source, "https://")
}

func checkSignal(p *Problems, s *EnergySignal) {
	if s.Source == "" {
		if s.Unit != "" {
			p.addf("energy_signal.source", "is missing, but energy_signal.unit is given; name a file or a URL")
		}
		return
	}
	u, err := url.Parse(s.Source)
	switch {
	case s.Web() && (err != nil || u.Host == "" || u.User != nil):
		p.addf("energy_signal.source", "%q is not a URL with a host and without a password", s.Source)
	case !s.Web() && !filepath.IsAbs(s.Source):
		p.addf("energy_signal.source", "%q is neither an absolute path nor an http or https URL", s.Source)
	}
	if strings.ContainsAny(s.Unit, "\n\t") || len(s.Unit) > 32 {
		p.addf("energy_signal.unit", "%q is not one line of at most 32 bytes", s.Unit)
	}
	if s.Every < time.Second || s.Every > 24*time.Hour {
		p.addf("energy_signal.every", "%s is outside 1s to 24h", s.Every)
	}
}
