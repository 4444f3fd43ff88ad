// Command sandbox runs one untrusted program in one fresh container and says
// truthfully what happened.
//
//	sandbox run --input data train.py
//	sandbox run -- python3 -c 'print(1)'
//
// Run `sandbox --help` for all commands, and `sandbox config` for every setting
// and where it came from. The exit codes are listed at [exitCode].
package main
