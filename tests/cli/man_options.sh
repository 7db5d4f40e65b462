#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every option that a --help text shows stands in its manual page and in the three completions; every option of a
# page is one that the program takes.
#
#   man_options.sh [FOLDER OF PROGRAMS]     default: build/bin, from the root of the sources
set -u

bin=${1:-build/bin}
failed=0
checked=0

complain() {
    echo "man_options: $*"
    failed=$((failed + 1))
}

# The long options in a --help text, without the dashes.
help_options() {
    sed -n 's/^  .\{4\}--\([a-z0-9_-]*\).*/\1/p'
}

# The options that a page explains: "--name" or "-x" of each list item, a name per line.
page_options() {
    sed -n 's/^\.It //p' "$1" | tr ',' '\n' | sed -n 's/^ *Fl -\([a-z0-9_-]*\).*/\1/p'
}

# check NAME PAGE COMMAND...
check() {
    name=$1
    page=$2
    shift 2
    if [ ! -f "$page" ]; then
        complain "$page is missing"
        return
    fi
    options=$("$@" --help | help_options)
    [ -n "$options" ] || complain "$name --help shows no options"
    for o in $options; do
        checked=$((checked + 1))
        page_options "$page" | grep -qx -e "$o" || complain "$page does not explain --$o"
        for file in tools/completion/ckpt.bash tools/completion/ckpt.zsh tools/completion/ckpt.fish; do
            grep -q -e "[^a-z_-]-*$o\([^a-z_-]\|\$\)" "$file" || complain "$file lacks --$o of $name"
        done
    done
    for o in $(page_options "$page"); do
        echo "$options" | grep -qx -e "$o" || complain "$page explains --$o, which $name lacks"
    done
}

for verb in ls info tree cat convert reshard verify diff doctor clean mem formats; do
    check "ckpt $verb" "man/ckpt-$verb.1" "$bin/ckpt" "$verb"
    grep -q "ckpt-$verb 1" man/ckpt.1 || complain "man/ckpt.1 does not refer to ckpt-$verb"
done
for name in zero_to_fp32 zero_to_torch ds_to_universal zerotrain; do
    check "$name" "man/$name.1" "$bin/$name"
done

# Every command of the list is known to the completions.
for verb in $("$bin/ckpt" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    for file in tools/completion/ckpt.bash tools/completion/ckpt.zsh tools/completion/ckpt.fish; do
        grep -q "\b$verb\b" "$file" || complain "$file lacks the command $verb"
    done
done

# fish reads its file without a complaint: what it calls is defined until the end.
checked=$((checked + 1))
if sed '1,/^functions -e __ckpt_option/d' tools/completion/ckpt.fish | grep -q __ckpt_option; then
    complain "tools/completion/ckpt.fish calls what it has removed"
fi
if command -v fish >/dev/null 2>&1; then
    checked=$((checked + 1))
    # fish writes to its home
    home=$(mktemp -d)
    said=$(HOME=$home XDG_CONFIG_HOME=$home XDG_DATA_HOME=$home fish --no-config tools/completion/ckpt.fish 2>&1 | head -n 3)
    rm -rf "$home"
    [ -z "$said" ] || complain "tools/completion/ckpt.fish: $said"
fi

if [ "$failed" -ne 0 ]; then
    echo "man_options: $((checked - failed)) passed, $failed failed"
    exit 1
fi
echo "man_options: $checked passed, 0 failed"
