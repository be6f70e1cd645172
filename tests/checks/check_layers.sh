#!/usr/bin/env bash
# check_layers.sh - folders are layers, and includes go one way.
#
#   tests/checks/check_layers.sh [DIR]        check the tree at DIR (default: this one)
#   tests/checks/check_layers.sh --self-test  show that every rule can fail
#
# Files are named with their module ("plan/plan.h", "cli/core/cli.h"), so the first lines of a file show
# its place. Folders below a module ("plan/layout/") divide it up and have no rules of their own.
set -euo pipefail

# Which modules a layer may include, besides itself and the public headers.
allowed() {
    case $1 in
        src/base) echo "" ;;
        src/la | src/comm | src/matrix | src/rule | src/io) echo "base" ;;
        mpi) echo "" ;;
        src/ns) echo "base la rule" ;;
        src/variant) echo "base" ;;
        src/plan) echo "base la matrix rule ns variant" ;;
        src/step) echo "base la comm matrix rule ns variant plan io" ;;
        src/save) echo "base comm rule plan io step" ;;
        src) echo "base la comm matrix rule ns plan io step save" ;;
        train) echo "base la comm" ;;
        cli) echo "train" ;;
        include/muon | examples) echo "" ;;
        *) return 1 ;;
    esac
}

check() (
    cd "$1"
    failed=0
    while IFS=: read -r file number line; do
        folder=$(layer "$file")
        if ! modules=$(allowed "$folder"); then
            echo "$file:$number: no layer is called $folder"
            failed=1
            continue
        fi
        [[ $line =~ [\"\<]([^\"\>]*)[\"\>] ]] && name=${BASH_REMATCH[1]} || name=$line
        accept "$folder" "$modules" "$name" "$line" && continue
        echo "$file:$number: $folder must not include \"$name\""
        failed=1
    done < <(grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include' include src mpi train cli examples)
    exit "$failed"
)

# The layer of a file: src/plan for src/plan/layout/grid.c, cli for cli/core/main.c.
layer() {
    local folder=${1%/*}
    case $folder in
        src/*/*) folder=${folder#src/} && echo "src/${folder%%/*}" ;;
        cli/* | train/*) echo "${folder%%/*}" ;;
        *) echo "$folder" ;;
    esac
}

# Is this include allowed in a file of this folder?
accept() {
    local folder=$1 modules=$2 name=$3 line=$4
    local module=${name%%/*} quoted=
    [[ $line == *'"'* ]] && quoted=yes
    if [[ $name == muon/* ]]; then
        return 0
    elif [[ $folder =~ ^(mpi|examples) && $name != *..* && -e $folder/$name ]]; then
        [[ $quoted ]] # a file of its own folder
    elif [[ $name == */* && ( -d src/$module || $module == train || $module == cli ) ]]; then
        [[ $quoted ]] && [[ $folder == "src/$module" || $folder == "$module" || " $modules " == *" $module "* ]]
    else
        [[ $line == *'<'* ]] # the system's
    fi
}

# Two trees: in one each include below is wrong and must be refused, in the other each is right.
self_test() {
    local tree want got
    tree=$(mktemp -d)
    # shellcheck disable=SC2064 # the name as it is now: the variable is gone at exit
    trap "rm -rf '$tree'" EXIT
    want=$(plant "$tree/wrong" <<'EOF'
src/base/a.c #include "la/a.h"
src/base/b.h   #  include   "step/a.h"
src/la/a.c #include "ns/a.h"
src/la/a.c #include "matrix/a.h"
src/matrix/a.c #include "la/a.h"
src/matrix/a.c #include "plan/a.h"
src/rule/a.c #include "ns/a.h"
src/rule/a.c #include "plan/a.h"
src/ns/a.c #include "matrix/a.h"
src/ns/a.c #include "plan/a.h"
src/comm/a.c #include "plan/a.h"
src/comm/a.c #include "step/a.h"
src/plan/a.c #include "comm/a.h"
src/plan/a.c #include "step/a.h"
src/plan/a.c #include "io/a.h"
src/step/a.c #include "save/a.h"
src/io/b.c #include "save/a.h"
src/plan/layout/a.c #include "step/a.h"
src/plan/layout/a.c #include "a.h"
src/step/a.c #include "a.h"
src/step/a.c #include <plan/a.h>
src/step/a.c #include "elsewhere/a.h"
src/step/a.c #include WHATEVER
src/io/a.c #include "step/a.h"
src/io/a.c #include "la/a.h"
src/io/a.c #include "matrix/a.h"
src/io/a.c #include "plan/a.h"
src/save/a.c #include "matrix/a.h"
src/new/a.c #include <stdio.h>
include/muon/muon.h #include "base/a.h"
cli/a.c #include "base/a.h"
cli/a.c #include "missing.h"
cli/a.c #include <base/a.h>
cli/a.c #include "../src/base/a.h"
mpi/a.c #include "base/a.h"
mpi/a.c #include "comm/a.h"
mpi/a.c #include "missing.h"
mpi/a.c #include "train/a.h"
src/step/b.c #include "train/a.h"
train/a.c #include "plan/a.h"
train/a.c #include "step/a.h"
train/a.c #include <base/a.h>
train/a.c #include "../cli/a.h"
train/run/a.c #include "cli/core/a.h"
train/run/a.c #include "a.h"
cli/b.c #include <train/a.h>
cli/core/a.c #include "base/a.h"
cli/core/a.c #include "a.h"
examples/a.c #include "train/a.h"
examples/a.c #include "plan/a.h"
examples/a.c #include "../cli/a.h"
examples/a.c #include "missing.h"
EOF
    )
    if got=$(check "$tree/wrong") || ! diff <(sort <<<"$want") <(cut -d: -f1,2 <<<"$got" | sort); then
        echo "want all of them refused (<), got these (>)"
        return 1
    fi
    plant "$tree/right" >/dev/null <<'EOF'
src/base/a.c #include "base/a.h"
src/base/a.c #include <sys/mman.h>
src/base/a.c #include "muon/muon.h"
src/la/a.c #include "base/a.h"
src/ns/a.c #include "la/a.h"
src/ns/a.c #include "rule/a.h"
src/plan/a.c #include "matrix/a.h"
src/plan/a.c #include "ns/a.h"
src/plan/layout/a.c #include "plan/layout/a.h"
src/plan/layout/a.c #include "matrix/a.h"
src/comm/a.c #include "base/a.h"
src/step/a.c #include "comm/a.h"
src/step/a.c #include "plan/a.h"
src/io/a.c #include "base/a.h"
src/step/b.c #include "io/a.h"
src/save/a.c #include "io/a.h"
src/save/a.c #include "step/a.h"
src/muon.c #include "io/a.h"
mpi/a.c #include "a.h"
mpi/a.c #include "muon/comm.h"
train/a.c #include "base/a.h"
train/a.c #include "comm/a.h"
train/a.c #include "la/a.h"
train/a.c #include "muon/comm.h"
train/run/a.c #include "train/model/a.h"
train/run/a.c #include "base/a.h"
cli/a.c #include "train/a.h"
cli/core/a.c #include "cli/plan/a.h"
cli/core/a.c #include "train/run/a.h"
mpi/a.c #include <mpi.h>
cli/a.c #include "muon/muon.h"
examples/a.c #include <muon/safetensors.h>
examples/a.c #include "a.h"
EOF
    check "$tree/right" && echo "every rule can fail"
}

# Makes a tree of the lines "FILE TEXT" on standard input; prints FILE:NUMBER of each.
plant() {
    local file text
    mkdir -p "$1"/{include/muon,mpi,train/run,cli/core,examples}
    mkdir -p "$1"/src/{base,la,comm,ns,matrix,rule,plan/layout,step,io,save,new}
    touch "$1"/{mpi,train,train/run,cli,cli/core,examples}/a.h
    while read -r file text; do
        echo "$text" >>"$1/$file"
        echo "$file:$(wc -l <"$1/$file")"
    done
}

case ${1-} in
    --self-test) self_test ;;
    *) check "${1-$(dirname "$0")/../..}" && echo "includes go one way" ;;
esac
