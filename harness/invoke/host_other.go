//go:build !unix

package invoke

import (
	"context"
	"errors"
)

// errNoGroups means that this system has no process groups, by which a tool and all
// that it started could be ended.
var errNoGroups = errors.New("a tool can be run on the host on Unix only")

func hostSupported() error { return errNoGroups }

func (h Host) run(context.Context, call, Plan) (ran, error) { return ran{}, errNoGroups }
