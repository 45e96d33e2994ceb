#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing need, on Debian. Silent and quick when all of it is there.
set -euo pipefail

# What is looked for, and the package that brings it. A name with a slash is a file, else a command.
needs="
clang=clang
llvm-strip=llvm
clang-format=clang-format
bpftool=bpftool
ip=iproute2
tc=iproute2
iptables=iptables
nft=nftables
ethtool=ethtool
ping=iputils-ping
git=git
make=make
/usr/include/bpf/bpf_helpers.h=libbpf-dev
/usr/include/linux/bpf.h=linux-libc-dev
/etc/ssl/certs/ca-certificates.crt=ca-certificates
"

PATH="$PATH:/usr/sbin:/sbin"
missing=""
for need in $needs; do
	what="${need%%=*}" package="${need#*=}"
	case "$what" in
	/*) [ -e "$what" ] && continue ;;
	*) command -v "$what" >/dev/null 2>&1 && continue ;;
	esac
	case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
done

if ! command -v go >/dev/null 2>&1; then
	want="$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")"
	echo "make deps: Go is not installed: install Go $want or newer from https://go.dev/dl/ and put it in PATH" >&2
	exit 1
fi
[ -z "$missing" ] && exit 0

if [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "make deps: this is not a Debian system; install what these Debian packages hold, then try again:$missing" >&2
	exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "make deps: must install$missing: run 'make deps' once as root (sudo is not there)" >&2
		exit 1
	fi
	as_root="sudo"
fi
echo "make deps: installing$missing"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
install() {
	# shellcheck disable=SC2086 # a list of packages
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
# The package lists of a fresh image are empty or old: refresh them only when they have to be.
if ! install >"$log" 2>&1; then
	if ! { $as_root apt-get update && install; } >"$log" 2>&1; then
		cat "$log" >&2
		echo "make deps: apt-get could not install$missing" >&2
		exit 1
	fi
fi
