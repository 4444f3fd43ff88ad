package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evalbox/evalbox/internal/strict"
)

// RegistriesSchemaV1 is the version of the list of package registries that this
// package reads.
const RegistriesSchemaV1 = "evalbox/registries/v1"

// LoadRegistries reads a list of package registries, see configs/registries.yaml,
// and returns their host patterns, sorted. source names it in messages.
func LoadRegistries(data []byte, source string) ([]string, error) {
	var doc struct {
		Schema     string              `yaml:"schema"`
		Registries map[string][]string `yaml:"registries"`
	}
	if problems := strict.Decode(data, &doc, strict.Options{Schema: RegistriesSchemaV1}); len(problems) > 0 {
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
