//go:build unix && !linux

package invoke

// groupLives reports whether the group has members.
func groupLives(group int) bool { return signalGroup(group, 0) }
