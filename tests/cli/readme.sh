#!/usr/bin/env bash
# readme.sh - the commands that README.md shows with what they print: each runs, and prints lines that
# begin as the lines there do. Measuring is left to bench.t.
#
# Usage: readme.sh EXAMPLES    Environment: MUONCTL. EXAMPLES is the folder of the built examples.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/build"
ln -s "$(dirname "${MUONCTL:?the path of muonctl}")" "$work/build/bin"
ln -s "$1" "$work/build/examples"
ln -s "$root/examples" "$work/examples"
cd "$work"

ran=0
command='' output=''
while IFS= read -r line; do
    case $line in
        '$ build/bin/muonctl bench '*) command='' ;;
        '$ build/'*)
            command=${line#'$ '}
            while [[ $command == *\\ ]]; do
                IFS= read -r line
                command=${command%\\}$line
            done
            output=$(eval "$command") || { echo "exit code $?: $command" && exit 1; }
            ran=$((ran + 1))
            ;;
        '```') command='' ;;
        ... | '') ;;
        *)
            [[ ! $command ]] || awk -v want="${line%% *}" '$1 == want { found = 1 } END { exit !found }' <<<"$output" ||
                { echo "no line begins with '${line%% *}': $command" && exit 1; }
            ;;
    esac
done <"$root/README.md"
[[ $ran -ge 5 ]] || { echo "only $ran commands found in README.md" && exit 1; }
echo "$ran commands of README.md run"
