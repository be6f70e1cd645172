#!/usr/bin/env bash
# run.sh - a user's programs, in C and C++11, against the installed library.
#
#   tests/consumer/run.sh BUILD_DIR     (CMAKE, CC, CXX and FLAGS from the environment)
#
# Installs to a prefix, moves that prefix (nothing in it may depend on its place), then builds and
# runs the programs by pkg-config and by find_package, each with the shared and the static library.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
cmake=${CMAKE:-cmake} cc=${CC:-cc} cxx=${CXX:-c++}
read -ra flags <<<"${FLAGS-} -Wall -Wextra -Wpedantic -Werror"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env -u DESTDIR "$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
prefix=$work/moved

fail() {
    echo "$*" >&2
    exit 1
}

grep -rIlF -e "$work/first" -e "$(cd "$build" && pwd)" "$prefix" &&
    fail "installed files that name the place they were made in (above)"
for file in bin/muonctl include/muon/muon.h include/muon/safetensors.h share/man/man1/muonctl.1; do
    [[ -f $prefix/$file ]] || fail "not installed: $file"
done
"$prefix/bin/muonctl" --help >/dev/null || fail "the installed muonctl does not run"

# Runs a program; $2 says which libmuon it must have been linked with.
run() {
    local program=$1 kind=$2 needed
    needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(libmuon[^]]*\)\].*/\1/p')
    [[ $kind == shared && $needed == libmuon.so.0 || $kind == static && -z $needed ]] ||
        fail "$program is to be linked with the $kind library, needs '$needed'"
    (cd "$work" && LD_LIBRARY_PATH="$libdir" "$program") || fail "$program failed"
}

pc=$(find "$prefix" -name libmuon.pc)
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
read -ra cflags < <(pkg-config --cflags libmuon)

# Builds both programs by pkg-config: a kind, then the libraries to link with.
by_pkg_config() {
    local kind=$1
    shift
    "$cc" -std=c11 "${flags[@]}" "${cflags[@]}" "$here/consumer.c" -o "$work/c_$kind" "$@" -lm
    "$cxx" -std=c++11 "${flags[@]}" "${cflags[@]}" "$here/consumer.cpp" -o "$work/cxx_$kind" "$@"
    run "$work/c_$kind" "$kind"
    run "$work/cxx_$kind" "$kind"
}
read -ra shared < <(pkg-config --libs libmuon)
by_pkg_config shared "${shared[@]}"
# -lmuon is to mean libmuon.a here; everything else stays as the system has it.
read -ra static < <(pkg-config --static --libs libmuon | sed 's/-lmuon/-l:libmuon.a/')
by_pkg_config static "${static[@]}"

# Says nothing unless it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "failed: $*"; }
}
quietly "$cmake" -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_FLAGS="${flags[*]}" -DCMAKE_CXX_FLAGS="${flags[*]}"
quietly "$cmake" --build "$work/build"
run "$work/build/c_muon" shared
run "$work/build/cxx_muon" shared
run "$work/build/c_static" static
run "$work/build/cxx_static" static
