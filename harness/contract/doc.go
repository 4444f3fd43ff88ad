// Package contract runs the code execution contract: a document that says what a
// tool is run with, what it may do and what it must give. The answer is a
// document too: an [Outcome].
//
// A contract is read ([Load]), checked as text ([Contract.Validate]), resolved
// against the host's files, carried out by a [sandbox.Runner], and accounted for
// point by point. Nothing that breaks a rule is started.
package contract
