#!/usr/bin/env bash
# The whole hostile suite, needs root:
#
#   hack/hostile.sh ENGINES TABLE [CORPUS]
#
# Each engine of hack/engine runs every probe with its own runtime, also in containers that
# have waited in a pool, and with gVisor. The
# last one runs them for a controller without root as well, and then the programs of the
# directory CORPUS. TABLE is the directory of the table, which is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
engines=$1 table=$2 corpus=${3:-}
suite=$PWD/.cache/hostile.test
code=0

# ask NAME COMMAND... runs the suite in one way. A difference fails the whole, at the end.
ask() {
	echo "hostile: $1" >&2
	shift
	(cd hack/hostile && "$@") || code=1
}

mkdir -p "$table"
for engine in $engines; do
	export EVALBOX_HOSTILE=full EVALBOX_HOSTILE_TABLE=$table
	ask "engine $engine" ../engine run "$engine" "$suite"
	EVALBOX_HOSTILE_POOL=1 ask "engine $engine, containers that waited" ../engine run "$engine" "$suite" -test.run '^TestEngine(Questions|Runs)$'
	if command -v runsc >/dev/null; then
		EVALBOX_HOSTILE_RUNTIME=runsc ask "engine $engine, gVisor" ../engine run "$engine" "$suite"
	fi
done
# A user who may use the socket of the engine and nothing else. Its files are its own.
cat >"$table/as-user" <<'END'
set -eu
socket=${DOCKER_HOST#unix://}
home=$(mktemp -d /tmp/evalbox-hostile-user-XXXXXX)
trap 'rm -rf "$home"' EXIT
cp "$1" "$home/hostile.test"
cp -r testdata "$home/"
cp ../../bin/sandbox "$home/sandbox"
mkdir "$home/table" "$home/tmp"
chown -R 64999:64999 "$home"
code=0
(cd "$home" && setpriv --reuid 64999 --regid 64999 --groups "$(stat -c %g "$socket")" --inh-caps=-all --bounding-set=-all \
  env HOME="$home" TMPDIR="$home/tmp" XDG_CONFIG_HOME="$home" EVALBOX_SANDBOX="$home/sandbox" EVALBOX_HOSTILE_TABLE="$home/table" ./hostile.test) || code=$?
cp "$home"/table/*.json "$2/"
exit $code
END
last=${engines##* }
ask "engine $last, without root" ../engine run "$last" sh "$table/as-user" "$suite" "$table"
rm "$table/as-user"
if [ -n "$corpus" ]; then
	corpus=$(realpath "$corpus")
	EVALBOX_CORPUS=$corpus ask "corpus" ../engine run "$last" "$suite" -test.run '^TestEngineCorpus$'
	EVALBOX_HOSTILE_POOL=1 EVALBOX_CORPUS=$corpus ask "corpus, containers that waited" ../engine run "$last" "$suite" -test.run '^TestEngineCorpus$'
fi
# The table of all columns.
(cd hack/hostile && EVALBOX_HOSTILE_TABLE=$table "$suite" -test.run '^TestPrintTable$' >/dev/null)
cat "$table/table.txt"
exit $code
