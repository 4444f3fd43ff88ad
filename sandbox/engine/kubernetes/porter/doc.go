// Package porter carries the streams and files of one pod between its program and a controller
// whose connections may break.
//
// Kubernetes has no signal, no copy and no log that keeps every byte: what an attached stream
// misses is lost, and the kubelet's log is rotated, merged and late. So each pod has a second
// container, the porter, with the user of the program, beside it but out of its reach. The porter
// holds the other ends of the pipes that are the streams of sandbox-init, keeps what they print in
// files that the program does not see, and serves them from any position, as often as a controller
// connects. It also fills and reads the volume with the files of the run.
//
// # The pod
//
// [Serve] is the porter. [Join] runs in the program's container before init: it makes the pipes,
// hands the porter its ends of them through a Unix socket, and becomes init. The porter accepts one
// such call, before any program exists, and then removes the socket.
//
// # The conversation
//
// A controller executes [Relay] in the porter's container. It connects its stdin and stdout to the
// porter, and is nothing but a pipe. The first line is a [Header]; records follow in both
// directions: a kind in 1 byte, a length in 4 bytes, little-endian, and the payload, at most 64 KiB.
//
//	to the porter   i  bytes for init's stdin, or of an archive
//	                c  the end of those bytes
//	                r  a request to init, one byte: see package wire
//	from it         h  hello, JSON: how many bytes of "i" have arrived, on any connection, and how
//	                   many requests of this controller
//	                o  bytes of init's stdout, or of an archive;  e  of its stderr
//	                a  how many bytes of "i" were passed on, 8 bytes
//	                g  a gap, JSON: the kept part of a stream begins later than asked
//	                q  a request to init that a controller has sent, and 1 if it was this one, 2 bytes
//	                x  init has ended, and everything was sent
//	                z  the end of a transfer, JSON: SHA-256 of all bytes, and the error
//
// The header says how many bytes of each stream the controller has; what it sent is numbered as
// well. So a connection may break at any byte, and nothing is lost or comes twice.
// Several controllers may read; the first one that comes while no other is connected takes over.
package porter
