package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/evalbox/evalbox/internal/strict"
)

// Egress says which hosts a program may reach through the proxy of its run (CX-04). The
// container itself has no network at any level. The zero value is offline.
type Egress struct {
	// Level is [Offline], [Registry], [API] or [Open]; empty is offline.
	Level NetworkLevel `json:"level,omitzero"`
	// Allow and Deny are host patterns, see [ParseHostPattern]. Deny wins. The level
	// [Registry] adds the package registries of the policy to Allow.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Resolve maps names to addresses and replaces the system's resolver for them, as
	// --add-host does for docker run. It does not permit anything: an address that is not
	// public must be allowed as well.
	Resolve map[string][]netip.Addr `json:"resolve,omitempty"`
	// Limits bound the connections and the bytes that pass.
	Limits EgressLimits `json:"limits,omitzero"`
}

// Offline reports whether the program reaches nothing.
func (e *Egress) Offline() bool { return e == nil || e.Level == "" || e.Level == Offline }

// EgressLimits bound the use of the proxy by a program. A zero field means its default.
type EgressLimits struct {
	// Connections bounds the requests and tunnels at one time, Requests all of them.
	Connections int `json:"connections,omitzero"`
	Requests    int `json:"requests,omitzero"`
	// Bytes bounds both directions together.
	Bytes Size `json:"bytes,omitzero"`
	// ConnectionTime bounds one connection.
	ConnectionTime time.Duration `json:"-"`
}

// egressLimitsWire is the wire form of [EgressLimits], with times in seconds.
type egressLimitsWire struct {
	ConnectionTimeSeconds float64 `json:"connection_time_seconds,omitzero"`
	*egressLimitsFields
}

type egressLimitsFields EgressLimits

// MarshalJSON writes times in seconds and sizes as text, and leaves out zero fields.
func (l EgressLimits) MarshalJSON() ([]byte, error) {
	return json.Marshal(egressLimitsWire{l.ConnectionTime.Seconds(), (*egressLimitsFields)(&l)})
}

// UnmarshalJSON refuses unknown fields.
func (l *EgressLimits) UnmarshalJSON(text []byte) error {
	wire := egressLimitsWire{egressLimitsFields: (*egressLimitsFields)(l)}
	err := strict.JSON(text, &wire)
	l.ConnectionTime = Seconds(wire.ConnectionTimeSeconds)
	return err
}

// NetworkLevel is a level of network access (CX-04).
type NetworkLevel string

// Levels of network access, from closed to open.
const (
	// Offline reaches nothing.
	Offline NetworkLevel = "offline"
	// Registry reaches package registries only.
	Registry NetworkLevel = "registry"
	// API reaches the hosts that are listed.
	API NetworkLevel = "api"
	// Open reaches every public address, logged; it needs an approval.
	Open NetworkLevel = "open"
)

// NetworkLevels are all levels, from closed to open.
func NetworkLevels() []NetworkLevel { return []NetworkLevel{Offline, Registry, API, Open} }

// registriesSchema is the version of the list of package registries that this
// package reads.
const registriesSchema = "evalbox/registries/v1"

// LoadRegistries reads a list of package registries, see configs/registries.yaml,
// and returns their host patterns, sorted. source names it in messages.
func LoadRegistries(data []byte, source string) ([]string, error) {
	var doc struct {
		Schema     string              `yaml:"schema"`
		Registries map[string][]string `yaml:"registries"`
	}
	if problems := strict.Decode(data, &doc, strict.Options{Schema: registriesSchema}); len(problems) > 0 {
		return nil, strict.Join(source, problems)
	}
	var hosts []string
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(doc.Registries)) {
		for _, host := range doc.Registries[name] {
			pattern, err := ParseHostPattern(host)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: registries.%s: %w", source, name, err))
			}
			hosts = append(hosts, pattern.String())
		}
	}
	if len(hosts) == 0 {
		errs = append(errs, fmt.Errorf("%s: registries: must name at least one host", source))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), errors.Join(errs...)
}
