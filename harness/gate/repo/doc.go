// Package repo tells what git knows of a workspace, writes the files of a revision to a
// folder, and compares two folders.
//
// A repository is a stranger's: what lies in it may be made to harm whoever looks. So no
// program is started, nothing of the repository is executed (no hook, filter, monitor or
// text conversion), nothing in it is written, no link in it is followed, and everything
// that is read is bounded. Objects are compared with the hashes by which they were asked
// for. The library that reads the format, go-git, sees the repository through a file
// system of ours that can only read regular files below one folder.
//
// Because filters are not run, files that a filter has changed on their way out of the
// repository (large files that live elsewhere, converted line ends) count as changed.
// Ignore files of the user, of the machine and of a clone (info/exclude) are not looked at:
// the answer is the same for everybody.
package repo
