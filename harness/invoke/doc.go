// Package invoke runs a black-box command line that declares its artifacts, and checks the
// artifacts.
//
// The tool is an external process only. It gets two paths and two options,
//
//	TOOL... --config FILE --output DIR [--adapter NAME] [--seed N]
//
// and leaves manifest.json and trace_pack.jsonl in the output directory. [Harness.Run]
// runs it in a fresh container and verifies its artifacts. [Verify] checks a directory
// without an engine, and returns the SHA-256 of every file. Nothing here changes a file of
// the tool.
//
// The package reads no clock, no random numbers and no environment except the given one.
// So two runs with the same input differ in the fields of [VolatileFields] only, unless the
// tool itself behaves differently. Relative paths are relative to the current directory.
//
// Identifiers such as M3-05 and MI-02 are those of docs/requirements.md.
package invoke
