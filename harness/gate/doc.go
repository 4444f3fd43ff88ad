// Package gate runs the tests of a workspace, keeps the evidence, judges it and runs it
// again (RT-01 to RT-17). No test, no pass.
//
// [Run] makes a gate directory in five nodes, each of which sees only the files of those
// before it:
//
//  1. manifest: the sealed wish, the state of the repository and the flags become
//     RunManifest.json;
//  2. execute: the commands run in fresh containers, and what they print and leave is
//     kept below evidence/raw;
//  3. normalize: run_log.txt, tests.json and observations.json are made of it;
//  4. hash: artifacts.json and evidence.manifest;
//  5. judge: ExecutionVerdict.json and GATES.json.
//
// A gate that may not pass has a verdict that says why, and that is no error. An error is
// a failure of ours; also then the directory has a verdict, and it is no pass. A
// directory that a crash left half-made is judged as blocked, as it has no manifest.
//
// [Judge] and [Verify] need the directory only, on any machine. [Replay] runs the same
// commands again and compares.
package gate
