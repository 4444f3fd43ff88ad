#!/bin/sh
# Looks for known vulnerabilities in what the code calls, with govulncheck.
#
#   hack/vulncheck.sh GOVULNCHECK [PACKAGE...]      default: the packages of both modules
#
# VULNDB is the vulnerability database: https://vuln.go.dev, or a copy of it, such as
# file:///srv/vulndb. Nothing of the code is sent to it.
#
# The exit code is 0 if nothing is known, 3 if something is, 4 if the database cannot be
# read, so that nothing was checked, and 1 for every other failure.
set -eu

database=${VULNDB:-https://vuln.go.dev}
tool=$1
shift
# The module in hack sees those of the root as well.
[ $# -gt 0 ] || set -- -C "$(dirname "$0")" github.com/evalbox/evalbox/...

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
code=0
"$tool" -db "$database" "$@" 2>"$errors" || code=$?
cat "$errors" >&2
# govulncheck has one exit code for all of its failures, and is pinned: these are the
# beginnings of its two messages about the database.
if [ "$code" -ne 0 ] && [ "$code" -ne 3 ] &&
	grep -q -e '^govulncheck: fetching vulnerabilities: ' -e '^creating client: ' "$errors"; then
	cat >&2 <<EOF
vulncheck: NOTHING WAS CHECKED: the vulnerability database $database cannot be read
vulncheck: hint: run make vulncheck where it can be, or name a copy: make vulncheck VULNDB=file:///DIRECTORY
EOF
	exit 4
fi
exit "$code"
