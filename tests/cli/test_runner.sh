#!/bin/sh
# The runner of transcripts must fail when it should. Environment: as run.sh.
set -u
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# expect ok|FAILED: the transcript on standard input passes or fails.
expect() {
    cat >"$scratch/case.t"
    got=$("$here/run.sh" "$scratch/case.t" | head -1)
    [ "$got" = "$1 case.t" ] && return
    echo "must be '$1': got '$got' from"
    cat "$scratch/case.t"
    : >"$scratch/failed" # a variable would die with the pipe's subshell
}

printf '$ echo a\na\n' | expect ok
printf '$ echo a\nb\n' | expect FAILED
printf '$ echo a\n' | expect FAILED
printf '$ true\na\n' | expect FAILED
printf '$ false\n' | expect FAILED
printf '$ false\n? 1\n' | expect ok
printf '$ false\n? 2\n' | expect FAILED
printf '$ true\n? 1\n' | expect FAILED
printf '$ echo a >&2\n2> a\n' | expect ok
printf '$ echo a >&2\na\n' | expect FAILED
printf '$ echo abc\na*c (glob)\n' | expect ok
printf '$ echo abd\na*c (glob)\n' | expect FAILED
printf '$ echo abc\na*c\n' | expect FAILED
printf '$ printf "a\\nb\\nc\\n"\na\n...\nc\n' | expect ok
printf '$ printf "a\\nb\\nc\\n"\n...\n' | expect ok
printf '$ printf "a\\nb\\n"\na\n...\nc\n' | expect FAILED
printf '$ printf "a\\nb\\nc\\nd\\n"\na\n...\nc\n' | expect FAILED
printf '$ printf "a\\n\\nb\\n"\na\n\nb\n' | expect ok
printf '$ printf "a\\nb\\n"\na\n\nb\n' | expect FAILED
printf '# text\n\n$ x=1\n\n$ echo $x\n1\n' | expect ok
printf '$ echo first\nsecond\n$ echo second\nfirst\n' | expect FAILED
[ ! -e "$scratch/failed" ]
