#!/usr/bin/env bash
# check_symbols.sh - the names a library shows to the world.
#
#   tests/checks/check_symbols.sh LIBRARY.so LIBRARY.a HEADER...
#   tests/checks/check_symbols.sh --self-test   show that every rule can fail (compiles with $CC, or cc)
#
# The shared library exports exactly what its public headers declare with MUON_API. In the static
# one, where nothing is hidden from the linker, every global name starts with muon_.
set -euo pipefail
export LC_ALL=C

# Names between MUON_API and the opening parenthesis, comments and directives taken out.
declared() {
    cat "$@" | grep -v '^[[:space:]]*#' | sed -E 's@//.*@@' | tr '\n' ' ' |
        sed -E 's@/\*([^*]|\*+[^*/])*\*+/@@g' | grep -oE 'MUON_API[^;(]*\(' |
        sed -E 's/.*[^A-Za-z0-9_]([A-Za-z0-9_]+) *\($/\1/' | sort
}

# Without the name of their version, and a compiler's own instrumentation:
# sanitizers (two underscores) and gcov (mangle_path).
exported() {
    nm -D --defined-only "$1" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | grep -vE '^(__|mangle_path$)' | sort
}

globals() {
    nm -g --defined-only "$1" | awk 'NF == 3 {print $3}' | grep -v '^__' | sort -u
}

check() {
    local shared=$1 static=$2 failed=0 name
    shift 2
    while read -r name; do
        echo "$shared: exports $name, which no public header declares"
        failed=1
    done < <(comm -13 <(declared "$@") <(exported "$shared"))
    while read -r name; do
        echo "$*: declares $name, which $shared does not export"
        failed=1
    done < <(comm -23 <(declared "$@") <(exported "$shared"))
    while read -r name; do
        echo "$static: global name $name does not start with muon_"
        failed=1
    done < <(globals "$static" | grep -v '^muon_')
    return $failed
}

# Libraries made of `source` beside a header that declares two functions.
self_check() {
    local source=$1 tree status=0
    tree=$(mktemp -d)
    mkdir -p "$tree/muon"
    cat >"$tree/muon/muon.h" <<'EOF'
#define MUON_API __attribute__((visibility("default")))
/* Here MUON_API int muon_comment(void) is only talk. */
MUON_API int muon_one(int x);
MUON_API const char *
muon_two(void (*f)(int), int x); // MUON_API int muon_talk(void);
EOF
    printf '#include "muon/muon.h"\n%s\n' "$source" >"$tree/a.c"
    "${CC:-cc}" -I"$tree" -fPIC -fvisibility=hidden -c "$tree/a.c" -o "$tree/a.o"
    "${CC:-cc}" -shared "$tree/a.o" -o "$tree/a.so"
    ar rcs "$tree/a.a" "$tree/a.o"
    check "$tree/a.so" "$tree/a.a" "$tree/muon/muon.h" || status=1
    rm -rf "$tree"
    return $status
}

self_test() {
    local failed=0 two='const char *muon_two(void (*f)(int), int x) { f(x); return ""; }'
    local good="int muon_one(int x) { return x; } $two int muon__inside(void) { return 1; }"
    refuses() {
        local output
        if output=$(self_check "$2") || [[ $output != *"$1"* ]]; then
            echo "want a message with '$1', got: $output"
            failed=1
        fi
    }
    self_check "$good" || { echo "refused what is right"; failed=1; }
    refuses "does not export" "$two"
    refuses "exports muon_three" "$good MUON_API int muon_three(void) { return 3; }"
    refuses "exports muon__open" "$good MUON_API int muon__open(void) { return 4; }"
    refuses "global name helper" "$good int helper(void) { return 5; }"
    refuses "global name table" "$good int table[3] = {1};"
    ((failed)) || echo "every rule can fail"
    return $failed
}

case ${1-} in
    --self-test) self_test ;;
    *) check "$@" && echo "$(declared "${@:3}" | wc -l) names exported, all declared" ;;
esac
