#!/bin/sh
# Runs a program next to a listener that leads to the proxy of its run. It says
# nothing unless it fails, and then one line only: the sandbox reads it.
fail() {
	trap - EXIT
	printf '[FATAL evalbox launch] %s\n' "$1" >&2
	exit 125
}
here=/run/evalbox
if ! command -v socat >/dev/null 2>&1; then
	fail 'the image has no socat, which leads to the proxy of the network level'
fi
# Whoever cannot reach the proxy finds that out now, not in the middle.
socat -u OPEN:/dev/null UNIX-CONNECT:"$here"/proxy.sock >/dev/null 2>&1 ||
	fail 'the proxy of the network level cannot be reached from the container: this engine or runtime does not pass sockets of the host on'
# In the background of a background, so that it is a child of the init and not of
# the program, which may wait for all of its children.
(
	socat -t 600 -b 65536 TCP4-LISTEN:"$1",bind=127.0.0.1,reuseaddr,backlog=128,fork,max-children="$2" \
		UNIX-CONNECT:"$here"/proxy.sock </dev/null >/dev/null 2>&1 &
)
# It listens once it can be reached; ten seconds at most.
socat -u OPEN:/dev/null TCP4:127.0.0.1:"$1",retry=1000,interval=0.01 >/dev/null 2>&1 ||
	fail 'socat of the image does not listen'
shift 2
unset here PWD OLDPWD SHLVL
# A program that cannot be run: the shell says why, and this which case it is.
trap 'printf "[FATAL evalbox launch] exec failed: %s\n" "$?" >&2' EXIT
exec "$@"
