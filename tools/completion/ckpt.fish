# ckpt.fish: completion for ckpt and its drop-ins in fish.
# tests/cli/man_options.sh fails while an option of a --help text is missing here.

set -l verbs ls info tree cat convert verify diff formats help version zero_to_fp32 zero_to_torch
complete -c ckpt -n "not __fish_seen_subcommand_from $verbs" -f -a "$verbs"
complete -c ckpt -s h -l help -d 'show the options'
complete -c ckpt -s V -l version -d 'show the version'

# verb, short form or -, long form, value or -, text
function __ckpt_option -a verb short long value text
    set -l args -l $long -d $text
    test $short != - && set args $args -s $short
    test $value != - && set args $args -x
    if contains -- $verb zero_to_fp32 zero_to_torch
        complete -c $verb $args
    end
    complete -c ckpt -n "__fish_seen_subcommand_from $verb" $args
end

for v in ls info tree cat convert verify zero_to_fp32 zero_to_torch
    __ckpt_option $v t tag tag 'this tag instead of the latest'
end
for v in ls info tree cat convert verify diff formats
    __ckpt_option $v - json - 'print JSON'
end
for v in ls cat convert verify diff formats zero_to_fp32 zero_to_torch
    __ckpt_option $v q quiet - 'say less'
end
for v in ls convert diff
    __ckpt_option $v - include glob 'only names that match'
    __ckpt_option $v - exclude glob 'no names that match'
end
for v in convert verify zero_to_fp32 zero_to_torch
    __ckpt_option $v - memory size 'for buffers, in all'
    __ckpt_option $v j jobs number 'threads'
end
for v in convert verify
    __ckpt_option $v - as-file - 'a shard alone'
    __ckpt_option $v - require-crc - 'records must carry a CRC-32'
end
for v in convert diff
    __ckpt_option $v - with-optimizer - 'also optimizer state'
end
for v in zero_to_fp32 zero_to_torch
    __ckpt_option $v - max_shard_size size 'largest file'
    __ckpt_option $v - safe_serialization - 'write safetensors'
    __ckpt_option $v - exclude_frozen_parameters - 'without frozen parameters'
    __ckpt_option $v d debug - 'print every parameter'
    __ckpt_option $v - no-fsync - 'do not wait for the disk'
    complete -c $v -s h -l help -d 'show the options'
    complete -c $v -s V -l version -d 'show the version'
end
__ckpt_option zero_to_torch - dtype dtype 'bf16, fp16 or fp32'

__ckpt_option ls l long - 'also role and place'
__ckpt_option ls a all - 'also optimizer state'
__ckpt_option ls b bytes - 'exact sizes'
__ckpt_option info a all - 'also optimizer state'
__ckpt_option info f files - 'list every file'
__ckpt_option tree d depth number 'levels'
__ckpt_option tree n max-items number 'items of a container'
__ckpt_option cat - dtype dtype 'convert to this dtype first'
__ckpt_option cat r range first:count 'elements'
__ckpt_option cat a all - 'every element'
__ckpt_option cat - raw - 'write bytes'
__ckpt_option cat s stats - 'statistics'
__ckpt_option convert - to format 'torch, safetensors, hf or hf-bin'
__ckpt_option convert - dtype dtype 'of all floating tensors'
__ckpt_option convert - max-shard-size size 'largest file of a folder'
__ckpt_option convert - rename file 'rules for names'
__ckpt_option convert - no-frozen - 'without frozen parameters'
__ckpt_option convert - exclude-frozen - 'without frozen parameters'
__ckpt_option convert f force - 'replace outputs'
__ckpt_option convert - no-fsync - 'do not wait for the disk'
__ckpt_option convert - no-side-files - 'no config and tokenizer'
__ckpt_option convert n dry-run - 'print the plan'
__ckpt_option diff - tol number 'largest distance that is equal'
__ckpt_option diff - ignore-dtype - 'dtypes may differ'

functions -e __ckpt_option
