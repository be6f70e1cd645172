#!/usr/bin/env bash
# run.sh - a user's programs, in C and C++11, against the installed library.
#
#   tests/consumer/run.sh BUILD_DIR     (CMAKE, CC, CXX, FLAGS, MPICC, MPIRUN from the environment)
#
# Installs to a prefix, moves that prefix (nothing in it may depend on its place), then builds and
# runs the programs by pkg-config and by find_package, each with the shared and the static library.
# Without MPICC the build has no libmuon_mpi.
source "$(dirname "$0")/common.sh"
build=$1
read -ra flags <<<"${FLAGS-} -Wall -Wextra -Wpedantic -Werror"

env -u DESTDIR "$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
prefix=$work/moved

grep -rIlF -e "$work/first" -e "$(cd "$build" && pwd)" "$prefix" &&
    fail "installed files that name the place they were made in (above)"
for file in bin/muonctl include/muon/muon.h include/muon/safetensors.h include/muon/checkpoint.h share/man/man1/muonctl.1; do
    [[ -f $prefix/$file ]] || fail "not installed: $file"
done
"$prefix/bin/muonctl" --help >/dev/null || fail "the installed muonctl does not run"

# Runs a program, by a launcher if one is given; $2 says which libraries of ours it must be linked with.
run() {
    local program=$1 kind=$2 want='' needed
    shift 2
    case $kind in
        shared) want="libmuon.so.$abi " ;;
        shared_mpi) want="libmuon.so.$abi libmuon_mpi.so.$abi " ;;
    esac
    needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(libmuon[^]]*\)\].*/\1/p' | sort |
        tr '\n' ' ')
    [[ $needed == "$want" ]] || fail "$program ($kind) needs '$needed' instead of '$want'"
    [[ ! $want || $(readelf -V "$program") == *"Name: MUON_$abi "* ]] ||
        fail "$program does not ask for symbols of MUON_$abi"
    (cd "$work" && LD_LIBRARY_PATH="$libdir" "$@" "$program") || fail "$program failed"
}

pc=$(find "$prefix" -name libmuon.pc)
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
abi=$(pkg-config --modversion libmuon)
abi=${abi%.*} # as docs/versioning.md promises before 1.0
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

quietly "$cmake" -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DMUON_ABI="$abi" \
    ${mpicc:+-DMPI_C_COMPILER="$mpicc"} \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_FLAGS="${flags[*]}" -DCMAKE_CXX_FLAGS="${flags[*]}"
quietly "$cmake" --build "$work/build"
run "$work/build/c_muon" shared
run "$work/build/cxx_muon" shared
run "$work/build/c_static" static
run "$work/build/cxx_static" static

[[ $mpicc ]] || exit 0
by_mpicc() {
    local kind=$1
    shift
    "$mpicc" -std=c11 "${flags[@]}" "${cflags[@]}" "$here/consumer_mpi.c" -o "$work/$kind" "$@"
    run "$work/$kind" "$kind" "${ranks[@]}"
}
read -ra shared < <(pkg-config --libs libmuon_mpi)
by_mpicc shared_mpi "${shared[@]}"
read -ra static < <(pkg-config --static --libs libmuon_mpi |
    sed -E 's/-l(muon|muon_mpi)( |$)/-l:lib\1.a\2/g')
by_mpicc static_mpi "${static[@]}"
run "$work/build/c_mpi" shared_mpi "${ranks[@]}"
run "$work/build/c_mpi_static" static_mpi "${ranks[@]}"
