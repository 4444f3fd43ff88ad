// Package invoke runs a black-box command line that declares its artifacts, and checks
// what it left.
//
// The tool is an external process only. It is told two paths and two options,
//
//	TOOL... --config FILE --output DIR [--adapter NAME] [--seed N]
//
// and leaves manifest.json and trace_pack.jsonl in the output directory. [Runner.Run]
// runs it, in a fresh container of package sandbox or, where somebody chose so, on this
// machine; [Verify] reads what it left, with the SHA-256 of every file. Nothing here
// changes a file of the tool.
//
// The package reads no clock, no random numbers and no environment but those that it is
// given, so that two runs with the same input differ in the fields of [VolatileFields]
// only, as far as the tool itself does. Of its own process it reads the current folder,
// in which relative paths are meant, and in which a tool of the host starts if no other
// folder is named.
//
// Identifiers such as M3-05 and MI-02 are those of docs/requirements.md.
package invoke
