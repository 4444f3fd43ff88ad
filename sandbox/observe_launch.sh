#!/bin/sh
# Holds a program back until somebody watches it. It says nothing unless it fails, and
# then one line only: the sandbox reads it.
fail() {
	trap - EXIT
	printf '[FATAL evalbox launch] %s\n' "$1" >&2
	exit 125
}
if ! [ -p /run/evalbox-hold/go ]; then
	fail 'what holds the program back is not there: this engine or runtime does not pass FIFOs of the host on'
fi
# A FIFO opens once both of its ends are there. This one is opened at both ends, and
# the end for writing closed again: if the controller is dead by then, or dies while
# we read, there is nothing to read, and the program never starts.
exec 3<>/run/evalbox-hold/go 4</run/evalbox-hold/go 3>&-
read -r evalbox_word <&4 || evalbox_word=
if [ "$evalbox_word" != go ]; then
	fail 'the controller went away before it let the program start'
fi
exec 4<&-
unset evalbox_word PWD OLDPWD SHLVL
# A program that cannot be run: the shell says why, and this which case it is.
trap 'printf "[FATAL evalbox launch] exec failed: %s\n" "$?" >&2' EXIT
exec "$@"
