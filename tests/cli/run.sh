#!/bin/sh
# Runs transcripts: files that show commands and exactly what they print.
#
#     # A comment.
#     $ muonctl stpe
#     2> muonctl: unknown command 'stpe'; did you mean 'step'?
#     2> try: muonctl --help
#     ? 2
#
# After "$ command" come its lines of standard output, then those of standard error with "2> " in
# front, then "? N" if the exit code is not 0. A line that ends with " (glob)" is a shell pattern; a
# line "..." stands for any number of lines. All commands of a file run in one shell, in an empty
# directory; $CONFIGS is where the example configs are, $DOCS the documentation.
#
# Usage: run.sh [--update] CASE.t ...    --update rewrites what does not match
# Environment: MUONCTL and TENSORS, the programs under test

set -u
update=
if [ "${1-}" = --update ]; then
    update=yes
    shift
fi
start=$(pwd)
here=$(cd "$(dirname "$0")" && pwd)
CONFIGS=$(cd "$here/../../examples/configs" && pwd)
DOCS=$(cd "$here/../../docs" && pwd)
: "${MUONCTL:?the path of muonctl}" "${TENSORS:?the path of tensors}"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

muonctl() { "$MUONCTL" "$@"; }
tensors() { "$TENSORS" "$@"; }

# Whether line $1 fits the expected line $2.
fits() {
    case $2 in
        *' (glob)')
            # shellcheck disable=SC2254 # a pattern is what it is
            case $1 in ${2% (glob)}) return 0 ;; esac
            return 1
            ;;
    esac
    [ "$1" = "$2" ]
}

# Prints the actual lines (descriptor 3), but the expected line (descriptor 4) wherever it fits, so
# that what is printed equals the expectation if and only if everything does.
merge() {
    more=yes
    while IFS= read -r want <&4 || [ -n "$want" ]; do
        if [ "$want" = ... ]; then
            echo ...
            IFS= read -r want <&4 || want=
            while IFS= read -r got <&3 || { more=; false; }; do
                if [ -n "$want" ] && fits "$got" "$want"; then break; fi
            done
            [ -z "$want" ] || { [ -n "$more" ] && echo "$want"; }
            continue
        fi
        IFS= read -r got <&3 || { more=; break; }
        if fits "$got" "$want"; then echo "$want"; else echo "$got"; fi
    done
    while [ -n "$more" ] && IFS= read -r got <&3; do echo "$got"; done
}

# Runs $command and prints what a transcript of it looks like.
transcribe() {
    set +u # is this script's own care
    eval "$command" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    set -u
    {
        cat "$scratch/out"
        sed "/ note: backend '/d; s/^/2> /" "$scratch/err" # these are about the machine
        [ $code = 0 ] || echo "? $code"
    } >"$scratch/got"
}

# Finishes the command under way: what it printed, fitted to the expected lines, then the empty lines
# and comments that followed those.
finish() {
    [ -n "$command" ] || return 0
    printf '$ %s\n' "$command" >>"$scratch/actual"
    transcribe
    merge 3<"$scratch/got" 4<"$scratch/want" >>"$scratch/actual"
    command=
}

run_case() {
    : >"$scratch/actual"
    : >"$scratch/want"
    command=
    empty=
    rm -rf "$scratch/dir"
    mkdir "$scratch/dir"
    cd "$scratch/dir" || exit 1
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
            '$ '* | '#'*)
                finish
                printf '%s' "$empty" >>"$scratch/actual"
                empty=
                : >"$scratch/want"
                case $line in
                    '$ '*) command=${line#??} ;;
                    *) printf '%s\n' "$line" >>"$scratch/actual" ;;
                esac
                ;;
            '')
                # Part of the output only if more of it follows.
                empty="$empty
"
                ;;
            *)
                printf '%s%s\n' "$empty" "$line" >>"$scratch/want"
                empty=
                ;;
        esac
    done <"$1"
    finish
    printf '%s' "$empty" >>"$scratch/actual"
    cd "$start" || exit 1
}

failed=0
for case in "$@"; do
    case $case in /*) ;; *) case=$start/$case ;; esac
    run_case "$case"
    if cmp -s "$scratch/actual" "$case"; then
        echo "ok $(basename "$case")"
    elif [ -n "$update" ]; then
        cp "$scratch/actual" "$case"
        echo "updated $(basename "$case")"
    else
        echo "FAILED $(basename "$case")"
        diff -u "$case" "$scratch/actual"
        failed=1
    fi
done
exit $failed
