package execute

import (
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/sandbox"
)

// decoys are paths outside of the boundary that no test has any business with. Each is
// shown as something that can be read and holds nothing, and opening it is seen. The
// home of a gate is /tmp.
var decoys = []string{"/etc/shadow", "/etc/gshadow", "/root/.ssh", sandbox.TmpDir + "/.ssh"}

// observed asks the sandbox to watch what the boundary and the mode forbid (RT-08).
func observed(req sandbox.Request, _ evidence.RunManifest) sandbox.Request { return req }
