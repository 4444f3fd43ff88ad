package archive

import (
	"path"
	"strconv"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// Sources returns the paths of the binds of a plan in its staging volume, by their roles.
func Sources(root string, plan spec.Spec) map[string]string {
	paths := map[string]string{}
	if len(plan.Class.Masks) > 0 {
		paths[spec.RoleEmpty] = path.Join(root, EmptyFile)
	}
	for i := range plan.Job.Mounts {
		paths[spec.NumberedRole(spec.RoleMount, i)] = path.Join(root, MountsDir, strconv.Itoa(i))
	}
	for i := range plan.Job.Trees {
		paths[spec.NumberedRole(spec.RoleTree, i)] = path.Join(root, TreesDir, strconv.Itoa(i))
	}
	for _, bind := range plan.Class.Binds {
		switch bind.Role {
		case spec.RoleProgram:
			paths[spec.RoleProgram] = path.Join(root, ProgramDir, path.Base(bind.Target))
		case spec.RoleInput:
			paths[spec.RoleInput] = path.Join(root, InputDir)
		case spec.RoleFinal:
			paths[spec.RoleFinal] = path.Join(root, FinalDir)
		case spec.RolePasswd, spec.RoleGroup:
			paths[bind.Role] = path.Join(root, bind.Role)
		}
	}
	return paths
}
