#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every option that a --help text shows stands in its manual page, every option of a page is one that the program takes, and
# bash, zsh and fish complete them: each shell that is installed is given the words and asked.
#
#   man_options.sh [FOLDER OF PROGRAMS]     default: build/bin, from the root of the sources
set -u

bin=$(cd "${1:-build/bin}" && pwd) || exit 2
PATH=$bin:$PATH
failed=0
checked=0
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
# fish writes to its home
HOME=$work
XDG_CONFIG_HOME=$work
XDG_DATA_HOME=$work
export PATH HOME XDG_CONFIG_HOME XDG_DATA_HOME

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

# ---- the shells: asked WORD... prints what stands for the last word ----

for shell in bash zsh fish; do
    ckpt completion $shell >"$work/ckpt.$shell" || complain "ckpt completion $shell fails"
    zerotrain --completion $shell >"$work/zerotrain.$shell" || complain "zerotrain --completion $shell fails"
done

cat >"$work/ask.bash" <<'EOF'
compopt() { :; }
. "$work/ckpt.bash"
. "$work/zerotrain.bash"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
spec=$(complete -p "$1")
spec=${spec% *}
"${spec##* }"
[ "${#COMPREPLY[@]}" -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}"
EOF

# The specifications that zsh's own _arguments would get.
cat >"$work/ask.zsh" <<'EOF'
_arguments() { print -rl -- "$@" }
_describe() { print -rl -- "${(@)${(P)2}%%:*}" }
service=$1
words=("$@")
CURRENT=$#
case $1 in
zerotrain) . "$work/zerotrain.zsh" ;;
*) . "$work/ckpt.zsh" ;;
esac
EOF

cat >"$work/ask.fish" <<'EOF'
source $work/ckpt.fish
source $work/zerotrain.fish
complete -C "$argv"
EOF

shells=
for shell in bash zsh fish; do
    command -v $shell >/dev/null 2>&1 && shells="$shells $shell"
done
work_env() { work=$work "$@"; }
asked() {
    shell=$1
    shift
    case $shell in
    bash) work_env bash "$work/ask.bash" "$@" ;;
    zsh) work_env zsh -f "$work/ask.zsh" "$@" | sed -e 's/^\*\{0,1\}\(([^)]*)\)\{0,1\}\(--[a-z0-9_-]*\)\[/\2\n[/' ;;
    fish) work_env fish --no-config "$work/ask.fish" "$*" | cut -f 1 ;;
    esac 2>&1
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
    # --help of commands with many options shows the common ones
    options=$("$@" --help=all 2>/dev/null | help_options)
    [ -n "$options" ] || options=$("$@" --help | help_options)
    [ -n "$options" ] || complain "$name --help shows no options"
    for o in $options; do
        checked=$((checked + 1))
        page_options "$page" | grep -qx -e "$o" || complain "$page does not explain --$o"
    done
    for o in $(page_options "$page"); do
        echo "$options" | grep -qx -e "$o" || complain "$page explains --$o, which $name lacks"
    done
    for shell in $shells; do
        checked=$((checked + 1))
        asked "$shell" "$@" -- >"$work/said"
        for o in $options; do
            grep -qx -e "--$o" "$work/said" || complain "$shell does not complete --$o of $name"
        done
    done
}

# completes WORD COMMAND...: in each shell, WORD is offered for the command's last word
completes() {
    word=$1
    shift
    for shell in $shells; do
        checked=$((checked + 1))
        asked "$shell" "$@" | grep -q -e "\(^\|[ (:]\)$word\($\|[ )]\)" || complain "$shell does not offer $word for: $*"
    done
}

for verb in ls info tree cat convert mount reshard verify diff doctor clean mem report formats completion; do
    check "ckpt $verb" "man/ckpt-$verb.1" ckpt "$verb"
    grep -q "ckpt-$verb 1" man/ckpt.1 || complain "man/ckpt.1 does not refer to ckpt-$verb"
done
for name in zero_to_fp32 zero_to_torch ds_to_universal zerotrain; do
    check "$name" "man/$name.1" "$name"
done

# Every command of the list is completed.
for verb in $(ckpt help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    completes "$verb" ckpt ""
done
completes zsh ckpt completion ""
completes universal ckpt convert --to ""
completes bf16 ckpt convert --dtype ""
completes cuda zerotrain --device ""

# A name from a checkpoint is offered as it is: no shell expands it.
cat >"$work/ckpt" <<'EOF'
#!/bin/sh
printf '%s\n' '$(touch hit)' '`touch hit`' plain
EOF
chmod +x "$work/ckpt"
checked=$((checked + 1))
said=$(cd "$work" && PATH=$work:$PATH asked bash ckpt cat . '$')
# shellcheck disable=SC2016
[ "$said" = '$(touch hit)' ] && [ ! -e "$work/hit" ] || complain "bash expands the names of tensors: $said"

if [ "$failed" -ne 0 ]; then
    echo "man_options: $((checked - failed)) passed, $failed failed"
    exit 1
fi
echo "man_options: $checked passed, 0 failed"
