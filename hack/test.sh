#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of every package, as root, and says how long each part took. Nothing is skipped
# silently: the list of skipped tests, with their reasons, ends the output. The whole of it is in
# build/test.log.
set -uo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
	echo "make test: the tests load BPF programs and make network namespaces: run it as root" >&2
	exit 1
fi
mkdir -p build
log=build/test.log
: >"$log"
failed=()

# What a passing test says about its course is in the log, not on the screen.
course='^ *(=== (RUN|PAUSE|CONT|NAME) |--- PASS: )'

# stage NAME COMMAND...: runs a part of the tests and remembers whether it failed.
stage() {
	local name="$1" start=$SECONDS status=0
	shift
	echo "== $name"
	"$@" 2>&1 | tee -a "$log" | grep -Ev --line-buffered "$course"
	status=${PIPESTATUS[0]}
	echo "== $name: $((SECONDS - start)) s"
	[ "$status" = 0 ] || failed+=("$name")
}

# All cells of the matrix (LAB_CELLS=all) take their time.
limit=30m
[ -z "${LAB_CELLS:-}" ] || limit=90m

packages="$(go list ./... )" || exit 1
# Functional tests own the machine's two CPUs while they run: they come after the others, one
# package at a time.
unit="$(grep -v '/fv-tests/' <<<"$packages")"
functional="$(grep '/fv-tests/' <<<"$packages")"

# shellcheck disable=SC2086 # lists of packages
{
	stage "unit and program tests" go test -v -timeout 10m $unit
	[ -z "$functional" ] || stage "functional tests" go test -count=1 -p 1 -v -timeout "$limit" $functional
}

# Lines of -v output: "    --- SKIP: TestX (0.00s)" with the reason behind it.
if grep -q -- '--- SKIP' "$log"; then
	echo "== skipped"
	grep -A1 -- '--- SKIP' "$log"
fi
echo "== total: $SECONDS s"
if [ ${#failed[@]} -gt 0 ]; then
	printf '== FAILED: %s\n' "${failed[@]}" >&2
	exit 1
fi
