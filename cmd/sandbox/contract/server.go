package contract

import (
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/settings"
)

// ServerOptions are the options of contracts whose authors may name files below root only: level
// extended reads no directory outside of it.
func ServerOptions(s settings.Settings, root string) (contract.Options, error) {
	o, err := execFlags{root: root}.options(s)
	o.Dependencies = nil
	return o, err
}
