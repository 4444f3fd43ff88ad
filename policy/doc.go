// Package policy says what a run may do: its limits with their units, the
// defaults and ceilings for them, and the rules for names and environment
// variables. It is pure: nothing here touches a file or an engine.
package policy
