#!/usr/bin/env bash
# library.sh - only the libraries: built, installed, found and linked as README.md says.
#
#   tests/consumer/library.sh SOURCE_DIR      (CMAKE, CC, CXX, MPICC, MPIRUN from the environment)
#
# Unoptimized, because what is tested here is the packaging. Without MPICC there is no libmuon_mpi.
source "$(dirname "$0")/common.sh"
source_dir=$(cd "$1" && pwd)
prefix=$work/.local
tools=(-DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS_RELEASE=-O0 -DMUON_MPI="$([[ $mpicc ]] && echo ON || echo OFF)"
    ${mpicc:+-DMPI_C_COMPILER="$mpicc"})

# ---- built without jansson, cmocka or a C++ compiler, and installed without anything else

(cd "$source_dir" && quietly env -u CXX "$cmake" --preset library -B "$work/build" "${tools[@]}" \
    -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON)
quietly "$cmake" --build "$work/build" -j2
quietly env -u DESTDIR "$cmake" --install "$work/build" --prefix "$prefix"

version=$(sed -n 's/^#define MUON_VERSION_[A-Z]* //p' "$source_dir/include/muon/muon.h" | paste -sd.)
abi=${version%.*} # as docs/versioning.md promises before 1.0
libraries=(libmuon)
headers=$(cd "$source_dir/include" && find muon -name '*.h')
if [[ $mpicc ]]; then
    libraries+=(libmuon_mpi)
else
    headers=$(grep -v muon_mpi <<<"$headers")
fi
want=$(
    printf 'include/%s\n' $headers
    for library in "${libraries[@]}"; do
        printf "lib/$library%s\n" .a .so ".so.$abi" ".so.$version"
        echo "lib/pkgconfig/$library.pc"
        targets=muonTargets
        [[ $library == libmuon ]] || targets=muonMpiTargets
        printf "lib/cmake/muon/$targets%s.cmake\n" '' -release
    done
    printf 'lib/cmake/muon/muonConfig%s.cmake\n' '' Version
)
got=$(cd "$prefix" && find . ! -type d -printf '%P\n')
diff <(sort <<<"$want") <(sort <<<"$got") || fail "installed is other than expected ('<')"
! readelf -d "$prefix"/lib/*.so | grep NEEDED | grep -q jansson || fail "a library needs jansson"

# ---- pkg-config, by the very lines of README.md

export HOME=$work
cp "$source_dir/examples/first_step.c" "$work/program.c"
cp "$source_dir/examples/mpi_step.c" "$work/mpi_program.c"
lines=$(sed -n '/^## Install and link/,/^## /s/^\(export\|cc\|mpicc\) .*/&/p' "$source_dir/README.md")
grep -q '^cc ' <<<"$lines" && grep -q '^mpicc ' <<<"$lines" || fail "no lines to compile with in README.md"
[[ $mpicc ]] || lines=$(grep -v '^mpicc ' <<<"$lines")
cc() { command "$cc" "$@"; }
mpicc() { command "$mpicc" "$@"; }
(cd "$work" && eval "$lines") || fail "README.md: $lines"
quietly "$work/program"
[[ ! $mpicc ]] || quietly "${ranks[@]}" "$work/mpi_program"

# ---- find_package: versions, a component, a project in C++ alone

minor=${abi#*.}
quietly "$cmake" -S "$here/cxx" -B "$work/cxx" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" \
    -DRIGHT="$abi;$version" -DWRONG="0.$((minor - 1));0.$((minor + 1));1.0;$abi.$((${version##*.} + 1))" \
    ${mpicc:+-DWITH_MPI=ON -DMPI_CXX_COMPILER="${mpicc/mpicc/mpicxx}"}
quietly "$cmake" --build "$work/cxx"
quietly "$work/cxx/cxx_only"
if [[ $mpicc ]]; then
    quietly "${ranks[@]}" "$work/cxx/cxx_only_mpi"
    quietly "${ranks[@]}" "$work/cxx/cxx_only_mpi_static"
fi

# refused TEXT OPTION...: configuring fails with TEXT.
refused() {
    local text=$1 message
    shift
    ! message=$("$cmake" -S "$here/cxx" -B "$work/refused" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_CXX_COMPILER="$cxx" "$@" 2>&1) || fail "not refused: $*"
    message=$(tr -s '[:space:]' ' ' <<<"$message")
    [[ $message == *"$text"* ]] || fail "no '$text' in: $message"
}
refused "compatible with requested version \"0.2\"" -DRIGHT=0.2
refused "muonConfig.cmake, version: $version" -DRIGHT=0.2
rm "$prefix"/lib/cmake/muon/muonMpiTargets*.cmake 2>/dev/null || true
refused "this libmuon was built without MPI" -DRIGHT="$abi" -DWITH_MPI=ON

# ---- as a part of another project

quietly "$cmake" -S "$here/part" -B "$work/whole" -DCMAKE_CXX_COMPILER="$cxx" -DMUON_SOURCE_DIR="$source_dir" \
    -DCMAKE_BUILD_TYPE=Release "${tools[@]}"
quietly "$cmake" --build "$work/whole" -j2 --target whole
quietly "$work/whole/whole"
[[ $("$cmake" --build "$work/whole" --target help) != *muonctl* ]] || fail "a part of another project has the tool"
quietly "$cmake" --install "$work/whole" --prefix "$work/nothing"
[[ ! -e $work/nothing ]] || fail "a part of another project installs itself: $(find "$work/nothing")"
