package spec

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/policy"
)

// claimScheme begins the text of a [Claim].
const claimScheme = "pvc://"

// Claim is a directory of a PersistentVolumeClaim, a volume of a cluster: pvc://NAME/PATH.
type Claim struct {
	Name string `json:"name"`
	// Path is relative to the root of the volume; empty for all of it.
	Path string `json:"path,omitzero"`
}

// Text returns the claim as a request names it.
func (c Claim) Text() string { return strings.TrimSuffix(claimScheme+c.Name+"/"+c.Path, "/") }

// IsClaim reports whether an input is a claim and not a directory of the host.
func IsClaim(input string) bool { return strings.HasPrefix(input, claimScheme) }

// claimName is a name of an object of Kubernetes.
var claimName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`) })

// ParseClaim reads the text of a claim. An error is a [*policy.FieldError].
func ParseClaim(text string) (*Claim, error) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(text, claimScheme), "/")
	rest = strings.TrimSuffix(rest, "/")
	if !IsClaim(text) || !claimName().MatchString(name) || rest != "" && (path.Clean("/"+rest) != "/"+rest || strings.ContainsAny(rest, "\x00:")) {
		return nil, &policy.FieldError{Field: "input", Value: fmt.Sprintf("%.200q", text), Rule: "is not pvc://NAME/PATH with the name of a PersistentVolumeClaim and a clean path in it"}
	}
	return &Claim{Name: name, Path: rest}, nil
}
