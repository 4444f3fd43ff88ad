// Package hostile is the hostile suite: it asks every probe of sandbox/probe on the engine of
// DOCKER_HOST, or on a cluster if EVALBOX_KUBERNETES_IMAGE names its image, as hack/cluster does.
// It also has those that need more than one run: servers of names and of TLS, pairs of runs, gates,
// contracts, images and archives. Its tests print a table of probes and engines.
//
// These variables change what it does:
//
//	EVALBOX_HOSTILE=full         asks the long probes as well
//	EVALBOX_HOSTILE_POOL=1       has a container of the pool wait for each program
//	EVALBOX_HOSTILE_RUNTIME=X    runs all programs with an OCI runtime of the engine
//	EVALBOX_HOSTILE_TABLE=DIR    adds a column to the table in a directory
//	EVALBOX_CORPUS=DIR           runs the programs of a directory with an expectations.json
package hostile
