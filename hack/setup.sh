#!/bin/sh
# Makes sure that this machine has what the repository needs. Safe to run again:
# what is there is left alone, and nothing is installed without saying so.
#
#   hack/setup.sh engine        a Docker engine that answers
#   hack/setup.sh image-tools   mmdebstrap and Debian's keys, for the debian image
#   hack/setup.sh test-tools    what the tests start or are compiled with: C
#                               compilers for both architectures of sandbox-init,
#                               a registry, an ssh server, mkfs.ext4, gVisor
#   hack/setup.sh browser-tools what the tests of the web page drive: chromium
#   hack/setup.sh release-tools what the packages of a release are checked with: rpm, man
#   hack/setup.sh bench-tools   what the benchmark measures beside evalbox:
#                               bubblewrap, gVisor, python3-docker
#   hack/setup.sh vm-tools      what the machine of hack/vm is made and run with
#   hack/setup.sh prefix        prints what a command that needs the engine is
#                               to be prefixed with: nothing, or sudo
#
# Packages are installed on Debian and Ubuntu only, as root or through sudo.
# Without arguments: engine and image-tools.
set -eu

ENGINE_WAIT=60 # seconds that an engine may take to start

say() { echo "setup: $*" >&2; }

die() {
	say "$1"
	[ $# -lt 2 ] || say "hint: $2"
	exit 1
}

# as_root COMMAND...: runs a command as root.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		die "needs root and there is no sudo: $*" "run it as root: hack/setup.sh"
	fi
}

# root_path COMMAND: prints where a command is, also one that only root's PATH has.
root_path() {
	PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" || true
}

# update_packages: fetches the package lists.
update_packages() {
	command -v apt-get >/dev/null 2>&1 ||
		die "cannot install $1 here: this is neither Debian nor Ubuntu" "install it, then try again"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 ||
		die "the package lists cannot be fetched" "check the network and the sources of apt"
}

# install_packages PACKAGE...: installs Debian packages, after update_packages.
install_packages() {
	say "installing $*"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
		install -q -y --no-install-recommends "$@" >&2 ||
		die "cannot install $*" "see the messages of apt-get above"
}

# engine_address prints the address of the engine that the docker command, and so
# ours, would use here.
engine_address() {
	if [ -n "${DOCKER_HOST:-}" ]; then
		echo "$DOCKER_HOST"
	elif ! docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null; then
		echo unix:///var/run/docker.sock
	fi
}

# socket_path prints the engine's socket, or nothing when it is elsewhere.
socket_path() {
	case "$(engine_address)" in
	unix://*) engine_address | sed 's|^unix://||' ;;
	esac
}

# engine_answers: succeeds when the engine answers to this user.
engine_answers() {
	if command -v docker >/dev/null 2>&1; then
		docker version --format '{{.Server.Version}}' >/dev/null 2>&1
	else
		socket=$(socket_path)
		[ -n "$socket" ] && command -v curl >/dev/null 2>&1 &&
			curl -sf -m 5 --unix-socket "$socket" http://localhost/_ping >/dev/null 2>&1
	fi
}

# engine_runs: succeeds when the engine answers to root.
engine_runs() {
	engine_answers || { [ "$(id -u)" -ne 0 ] && as_root docker version >/dev/null 2>&1; }
}

# await_engine: waits until the engine answers, at most ENGINE_WAIT seconds.
await_engine() {
	waited=0
	until engine_runs; do
		[ "$waited" -lt "$ENGINE_WAIT" ] || return 1
		sleep 1
		waited=$((waited + 1))
	done
}

# start_engine: starts the installed engine.
start_engine() {
	say "starting the Docker engine"
	if [ -d /run/systemd/system ] && as_root systemctl start docker >&2 && await_engine; then
		return
	fi
	if command -v service >/dev/null 2>&1 && as_root service docker start >&2 && await_engine; then
		return
	fi
	log=/var/log/dockerd-setup.log
	say "no service manager could start it, starting dockerd itself; its messages go to $log"
	as_root sh -c "nohup dockerd </dev/null >$log 2>&1 &"
	await_engine || {
		as_root tail -n 5 "$log" >&2
		die "the Docker engine does not answer after $ENGINE_WAIT s" "see $log"
	}
}

# install_engine: installs the engine of the distribution and what it needs to
# confine a container there.
install_engine() {
	update_packages docker.io
	set -- docker.io
	# Newer releases have the client apart; AppArmor's tool is wanted by
	# kernels that have AppArmor; without systemd somebody must mount cgroups.
	command -v docker >/dev/null 2>&1 || ! apt-cache show docker-cli >/dev/null 2>&1 || set -- "$@" docker-cli
	[ ! -d /sys/kernel/security/apparmor ] || set -- "$@" apparmor
	[ -d /run/systemd/system ] || grep -q ' /sys/fs/cgroup' /proc/mounts || set -- "$@" cgroupfs-mount
	install_packages "$@"
}

need_engine() {
	if engine_answers; then
		return
	fi
	[ -n "$(socket_path)" ] ||
		die "no Docker engine answers at $(engine_address)" "start it there, or unset DOCKER_HOST and DOCKER_CONTEXT"
	[ -n "$(root_path dockerd)" ] || install_engine
	engine_runs || start_engine
	engine_answers || {
		say "the Docker engine refuses user $(id -un): what needs it goes through sudo"
		say "hint: to do without: sudo usermod -aG docker $(id -un), then log in again"
	}
}

# print_prefix: prints what to put before a command that needs the engine.
print_prefix() {
	engine_answers || [ "$(id -u)" -eq 0 ] || echo "sudo --preserve-env=DOCKER_HOST,DOCKER_CONTEXT,DOCKER_CONFIG,DOCKER_TLS,DOCKER_TLS_VERIFY,DOCKER_CERT_PATH,DOCKER_API_VERSION"
}

need_image_tools() {
	missing=
	command -v mmdebstrap >/dev/null 2>&1 || missing="$missing mmdebstrap"
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
	[ -n "$missing" ] || return 0
	update_packages "${missing# }"
	# shellcheck disable=SC2086 # a list of words
	install_packages $missing
}

need_test_tools() {
	missing=
	command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
	command -v pkg-config >/dev/null 2>&1 || missing="$missing pkg-config"
	command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 || missing="$missing gcc-aarch64-linux-gnu"
	[ -e /usr/aarch64-linux-gnu/include/asm/unistd.h ] || missing="$missing linux-libc-dev-arm64-cross"
	[ -e /usr/include/seccomp.h ] || missing="$missing libseccomp-dev"
	command -v docker >/dev/null 2>&1 || missing="$missing docker.io"
	command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
	command -v pkill >/dev/null 2>&1 || missing="$missing procps"
	command -v ssh >/dev/null 2>&1 || missing="$missing openssh-client"
	[ -n "$(root_path mkfs.ext4)" ] || missing="$missing e2fsprogs"
	ldconfig -p | grep -q libwrap.so || missing="$missing libwrap0" # sshd's
	# gVisor, where the distribution has it.
	command -v runsc >/dev/null 2>&1 || ! apt-cache show runsc >/dev/null 2>&1 || missing="$missing runsc"
	if [ -n "$missing" ]; then
		update_packages "${missing# }"
		# shellcheck disable=SC2086 # a list of words
		install_packages $missing
	fi
	unpack docker-registry usr/bin/docker-registry
	unpack openssh-server usr/sbin/sshd
	# The user that sshd becomes before a login.
	getent passwd sshd >/dev/null || as_root useradd --system --home-dir /run/sshd --shell /usr/sbin/nologin sshd
}

need_browser_tools() {
	! command -v chromium >/dev/null 2>&1 || return 0
	update_packages chromium
	install_packages chromium fonts-dejavu-core
}

need_release_tools() {
	missing=
	command -v man >/dev/null 2>&1 || missing="$missing man-db"
	command -v rpm >/dev/null 2>&1 || missing="$missing rpm"
	[ -n "$missing" ] || return 0
	update_packages "${missing# }"
	# shellcheck disable=SC2086 # a list of words
	install_packages $missing
}

need_vm_tools() {
	need_image_tools
	missing=
	command -v qemu-system-x86_64 >/dev/null 2>&1 || missing="$missing qemu-system-x86"
	[ -n "$(root_path mke2fs)" ] || missing="$missing e2fsprogs"
	[ -n "$missing" ] || return 0
	update_packages "${missing# }"
	# shellcheck disable=SC2086 # a list of words
	install_packages $missing
}

# unpack PACKAGE FILE: puts one program of a package beside the build. Installed,
# the package would be a service of this machine.
unpack() {
	tools=$(dirname "$0")/../.cache/test-tools
	[ ! -x "$tools/${2##*/}" ] || return 0
	update_packages "$1"
	say "unpacking $1"
	rm -rf "$tools/partial"
	mkdir -p "$tools/partial"
	(
		cd "$tools/partial"
		apt-get download -q "$1" >&2 && dpkg-deb -x "$1"_*.deb .
	) || die "$1 cannot be fetched" "see the messages of apt-get above"
	mv "$tools/partial/$2" "$tools/"
	rm -r "$tools/partial"
}

# need_bench_tools: unpacks what is measured beside evalbox. None of it has to be
# installed, and what is measured is what Debian has.
need_bench_tools() {
	tools=$(dirname "$0")/../.cache/bench-tools
	[ ! -d "$tools" ] || return 0
	[ -x /usr/bin/python3 ] || die "there is no /usr/bin/python3" "install Debian's python3"
	update_packages bubblewrap
	# python3-docker and the modules that it needs.
	packages=$(apt-cache depends --recurse --important python3-docker | grep '^python3-' | sort -u | grep -v '^python3-minimal$')
	say "unpacking bubblewrap, runsc and python3-docker"
	rm -rf "$tools.partial"
	mkdir -p "$tools.partial"
	(
		# shellcheck disable=SC2086 # a list of words
		cd "$tools.partial" && apt-get download -q bubblewrap runsc $packages >&2 &&
			for package in *.deb; do dpkg-deb -x "$package" . || exit; done &&
			rm -- *.deb
	) || die "bubblewrap, runsc or python3-docker cannot be fetched" "see the messages of apt-get above"
	mv "$tools.partial" "$tools"
}

[ $# -gt 0 ] || set -- engine image-tools
for part in "$@"; do
	case "$part" in
	engine) need_engine ;;
	image-tools) need_image_tools ;;
	test-tools) need_test_tools ;;
	browser-tools) need_browser_tools ;;
	release-tools) need_release_tools ;;
	bench-tools) need_bench_tools ;;
	vm-tools) need_vm_tools ;;
	prefix) print_prefix ;;
	*)
		say "unknown part $part: want engine, image-tools, test-tools, browser-tools, release-tools, bench-tools, vm-tools or prefix"
		exit 2
		;;
	esac
done
