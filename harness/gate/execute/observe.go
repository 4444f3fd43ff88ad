package execute

import (
	"github.com/evalbox/evalbox/sandbox"
)

// decoys are paths outside of the boundary that no test has any business with. Each is
// shown as something that can be read and holds nothing of worth, and opening it is seen.
func decoys(home string) []string {
	all := []string{"/etc/shadow", "/etc/gshadow", "/root/.ssh/"}
	if home != "/root" {
		all = append(all, "~/.ssh/")
	}
	return all
}

// observed asks the sandbox to watch what the boundary and the mode forbid (RT-08). What
// cannot be observed on this engine is told in the result, and is for the judge.
func observed(req sandbox.Request) sandbox.Request {
	req.Observe = &sandbox.Observe{Network: true, Canaries: decoys(req.Env["HOME"]), Masks: true}
	return req
}
