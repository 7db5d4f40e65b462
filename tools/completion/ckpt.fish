# ckpt.fish: completion for ckpt and its drop-ins in fish.
# tests/cli/man_options.sh fails while an option of a --help text is missing here.

set -l verbs ls info tree cat convert reshard verify diff doctor clean formats help version zero_to_fp32 zero_to_torch ds_to_universal
complete -c ckpt -n "not __fish_seen_subcommand_from $verbs" -f -a "$verbs"
complete -c ckpt -s h -l help -d 'show the options'
complete -c ckpt -s V -l version -d 'show the version'

# verb, short form or -, long form, value or -, text
function __ckpt_option -a verb short long value text
    set -l args -l $long -d $text
    test $short != - && set args $args -s $short
    test $value != - && set args $args -x
    if contains -- $verb zero_to_fp32 zero_to_torch ds_to_universal
        complete -c $verb $args
    end
    complete -c ckpt -n "__fish_seen_subcommand_from $verb" $args
end

for v in ls info tree cat convert reshard verify zero_to_fp32 zero_to_torch
    __ckpt_option $v t tag tag 'this tag instead of the latest'
end
for v in ls info tree cat convert reshard verify diff doctor clean formats
    __ckpt_option $v - json - 'print JSON'
end
for v in ls cat convert reshard verify diff doctor clean formats zero_to_fp32 zero_to_torch ds_to_universal
    __ckpt_option $v q quiet - 'say less'
end
for v in ls convert diff
    __ckpt_option $v - include glob 'only names that match'
    __ckpt_option $v - exclude glob 'no names that match'
end
for v in convert reshard verify doctor zero_to_fp32 zero_to_torch ds_to_universal
    __ckpt_option $v - memory size 'for buffers, in all'
    __ckpt_option $v j jobs number 'threads'
end
for v in convert verify
    __ckpt_option $v - as-file - 'a shard alone'
end
for v in convert reshard verify
    __ckpt_option $v - require-crc - 'records must carry a CRC-32'
end
for v in ls info convert
    __ckpt_option $v - keep-slices - 'tensor-parallel slices one by one'
end
for v in ls info convert reshard
    __ckpt_option $v - slice-rules file 'how slices are joined'
end
for v in convert reshard
    __ckpt_option $v - order file 'names in order, or stored'
    __ckpt_option $v - to-tag name 'name of the new tag'
    __ckpt_option $v - drop-optimizer - 'moments of zero'
    __ckpt_option $v - keep-objects - 'objects of unknown classes go along'
    __ckpt_option $v - drop-objects - 'they are left out'
    __ckpt_option $v f force - 'replace outputs'
    __ckpt_option $v - no-fsync - 'do not wait for the disk'
    __ckpt_option $v n dry-run - 'print the plan'
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
__ckpt_option ds_to_universal - input_folder folder 'the checkpoint'
__ckpt_option ds_to_universal - output_folder folder 'what to make'
__ckpt_option ds_to_universal - num_extract_workers number 'not needed'
__ckpt_option ds_to_universal - num_merge_workers number 'not needed'
__ckpt_option ds_to_universal - keep_temp_folder - 'there is none'
__ckpt_option ds_to_universal - no_strict - 'patterns without a match only warn'
__ckpt_option ds_to_universal - inject_missing_state - 'always done'
__ckpt_option ds_to_universal - slice_rules file 'how slices are joined'
__ckpt_option ds_to_universal - deepspeed_version version 'write for it'
__ckpt_option ds_to_universal - keep_objects - 'objects of unknown classes go along'
__ckpt_option ds_to_universal - drop_objects - 'they are left out'
__ckpt_option ds_to_universal - no-fsync - 'do not wait for the disk'

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
__ckpt_option convert - to format 'torch, safetensors, hf, hf-bin, universal or zero'
__ckpt_option convert - dtype dtype 'of all floating tensors'
__ckpt_option convert - max-shard-size size 'largest file of a folder'
__ckpt_option convert - rename file 'rules for names'
__ckpt_option convert - no-frozen - 'without frozen parameters'
__ckpt_option convert - exclude-frozen - 'without frozen parameters'
__ckpt_option convert - no-side-files - 'no config and tokenizer'
__ckpt_option reshard w world number 'data-parallel ranks'
__ckpt_option reshard s stage number 'ZeRO stage 1, 2 or 3'
__ckpt_option reshard - dtype dtype 'fp16, bf16 or fp32'
__ckpt_option reshard - sub-group-size number 'elements, stage 3'
__ckpt_option reshard - deepspeed-version release 'write for it'
__ckpt_option reshard - join - 'join tensor-parallel slices'
__ckpt_option doctor d deep - 'read everything'
__ckpt_option doctor - fix-latest - 'let latest name the newest whole tag'
__ckpt_option doctor a all - 'every problem'
__ckpt_option clean n dry-run - 'remove nothing'
__ckpt_option clean f force - 'young files too'
__ckpt_option diff - tol number 'largest distance that is equal'
__ckpt_option diff - ignore-dtype - 'dtypes may differ'

functions -e __ckpt_option
