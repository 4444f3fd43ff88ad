// Package execute is node 2 of a gate: it runs the commands of a RunManifest.json, each
// in a fresh container, and writes down what happened (RT-11). It decides nothing: that a
// command failed, hung or printed without end is a fact like any other, and judged
// elsewhere. RunManifest.json is all that it reads (RT-17).
//
// What it writes, below evidence/: env_snapshot.json with what the gates ran in, and
// for the gate NN
//
//	raw/NN.stdout.log, raw/NN.stderr.log   the streams, byte for byte
//	raw/NN.result.json                     evalbox/result/v1 without the streams
//	raw/NN.report                          the report file that the gate left, if it did
//	raw/NN.outputs.json                    which files were kept, and which not, and why
//	outputs/NN/…                           the files of artifact_paths that it made or changed
//
// The gates on the baseline write to raw/baseline, the K-th repetition to raw/repeat-K,
// with its files in raw/repeat-K/outputs/NN. A gate that never ran has no files.
package execute
