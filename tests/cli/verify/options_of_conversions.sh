# SPDX-License-Identifier: Apache-2.0
# Each option of a conversion is for --made-from; without it, a warning reports that the option has no effect.
echo '* *' >rules
echo '{}' >config.json
model=$FIXTURES/hf_llama_single
ckpt verify --help=all | awk '/^[A-Z]/ { on = /^Conversion/ } on && /--/ { print $1 ~ /^--/ ? $1 : $2, $1 ~ /^--/ ? $2 : $3 }' >options
[ "$(wc -l <options)" -gt 40 ] || echo "only $(wc -l <options) options were found"
while read -r option kind; do
    case $kind in
    N | K) set -- "$option" 2 ;;
    X) set -- "$option" 0.5 ;;
    1\|2\|3) set -- "$option" 2 ;;
    fp32) set -- "$option" fp32 ;;
    FILE) set -- "$option" rules ;;
    PATH | DIR*) set -- "$option" config.json ;;
    D*) set -- "$option" f16 ;;
    GLOB | NAME | KEY | V | FORM | PROGRAM* | HEAD*) set -- "$option" w ;;
    NAME\|FILE) set -- "$option" hf:megatron ;;
    NAME=VALUE) set -- "$option" heads=2 ;;
    *\|*) set -- "$option" "${kind%%|*}" ;;
    *) set -- "$option" ;;
    esac
    ckpt verify -q "$model" "$@" 2>&1 | grep -q -e "$option has no effect without --made-from" || echo "$*: no warning"
done <options
