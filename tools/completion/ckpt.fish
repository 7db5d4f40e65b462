# SPDX-License-Identifier: Apache-2.0
# ckpt.fish: completion for ckpt and its drop-ins in fish.
# tests/cli/man_options.sh fails while an option of a --help text is missing here.

set -l verbs ls info tree cat convert reshard verify diff doctor clean mem formats help version zero_to_fp32 zero_to_torch ds_to_universal
complete -c ckpt -n "not __fish_seen_subcommand_from $verbs" -f -a "$verbs"
complete -c ckpt -s h -l help -d 'show the options'
complete -c ckpt -s V -l version -d 'show the version'

# verb, short form or -, long form, value or -, text
function __ckpt_option -a verb short long value text
    set -l args -l $long -d $text
    test $short != - && set args $args -s $short
    test $value != - && set args $args -x
    if contains -- $verb zero_to_fp32 zero_to_torch ds_to_universal zerotrain
        complete -c $verb $args
    end
    test $verb = zerotrain; and return
    complete -c ckpt -n "__fish_seen_subcommand_from $verb" $args
end

for v in ls info tree cat convert reshard verify zero_to_fp32 zero_to_torch
    __ckpt_option $v t tag tag 'this tag instead of the latest'
end
for v in ls info tree cat convert reshard verify diff doctor clean mem formats
    __ckpt_option $v - json - 'print JSON'
end
for v in ls info tree cat convert reshard verify diff doctor clean mem zero_to_fp32 zero_to_torch ds_to_universal
    __ckpt_option $v - no-sandbox - 'keep all rights'
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
for v in ls info cat convert verify diff
    __ckpt_option $v - keep-slices - 'tensor-parallel slices one by one'
end
for v in ls info cat convert reshard verify diff
    __ckpt_option $v - slice-rules file 'how slices are joined'
end
for v in convert reshard
    __ckpt_option $v - order file 'names in order, or stored'
    __ckpt_option $v - to-tag name 'name of the new tag'
    __ckpt_option $v - drop-optimizer - 'moments of zero'
    __ckpt_option $v - keep-objects - 'objects of unknown classes go along'
    __ckpt_option $v - drop-objects - 'they are left out'
    __ckpt_option $v - strict - 'warnings are errors'
    __ckpt_option $v - allow-overflow - 'values may be lost'
    __ckpt_option $v f force - 'replace outputs'
    __ckpt_option $v - no-fsync - 'do not wait for the disk'
    __ckpt_option $v n dry-run - 'print the plan'
end
for v in convert reshard verify
    __ckpt_option $v - ignore-copies - 'masters are not compared with 16-bit copies'
end
for v in zero_to_fp32 zero_to_torch ds_to_universal
    __ckpt_option $v - ignore_copies - 'masters are not compared with 16-bit copies'
end
for v in zero_to_fp32 zero_to_torch
    __ckpt_option $v - keep_slices - 'tensor-parallel slices one by one'
    __ckpt_option $v - slice_rules file 'how slices are joined'
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
    __ckpt_option $v - strict - 'warnings are errors'
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
__ckpt_option ds_to_universal - inject_missing_state - 'join slices by their first axis'
__ckpt_option ds_to_universal - slice_rules file 'how slices are joined'
__ckpt_option ds_to_universal - deepspeed_version version 'write for it'
__ckpt_option ds_to_universal - keep_objects - 'objects of unknown classes go along'
__ckpt_option ds_to_universal - drop_objects - 'they are left out'
__ckpt_option ds_to_universal - strict - 'warnings are errors'
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
__ckpt_option cat - no-crc - 'read only what is shown'
__ckpt_option cat - raw - 'write bytes'
__ckpt_option cat s stats - 'statistics'
__ckpt_option convert - to format 'torch, safetensors, npz, hf, hf-bin, universal or zero'
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
__ckpt_option mem - stage number 'only this ZeRO stage'
__ckpt_option mem - num-gpus number 'GPUs of each node'
__ckpt_option mem - num-nodes number 'nodes'
__ckpt_option mem - params number 'parameters of the model'
__ckpt_option mem - largest-layer number 'parameters of its largest layer'
__ckpt_option clean n dry-run - 'remove nothing'
__ckpt_option clean f force - 'young files too'
__ckpt_option diff - tol number 'largest distance that is equal'
__ckpt_option diff - ignore-dtype - 'dtypes may differ'

__ckpt_option zerotrain - deepspeed_config value 'ds_config.json (HJSON, or base64 of it)'
__ckpt_option zerotrain - strict-config - 'keys that are not known are errors'
__ckpt_option zerotrain - model value 'config.json of a model, or its folder'
__ckpt_option zerotrain - init value 'first weights: any checkpoint (default: drawn by --seed)'
__ckpt_option zerotrain - data value 'training data: .bin .npy .safetensors .tsv .csv .jsonl'
__ckpt_option zerotrain - eval-data value 'data to evaluate'
__ckpt_option zerotrain - max-steps value 'updates of the whole run, resumed ones included'
__ckpt_option zerotrain - epochs value 'passes over the data, without --max-steps (1)'
__ckpt_option zerotrain - metrics value 'a JSON line for each update'
__ckpt_option zerotrain - save value 'write checkpoints there, at the end and when stopped'
__ckpt_option zerotrain - save-every value 'and after every N updates'
__ckpt_option zerotrain - keep value 'keep the newest K checkpoints only'
__ckpt_option zerotrain - async-save - 'go on while a checkpoint is written'
__ckpt_option zerotrain - tag value 'tag of the checkpoint (global_stepN)'
__ckpt_option zerotrain - load value 'resume from a checkpoint of any kind, stage and world'
__ckpt_option zerotrain - load-tag value 'that tag instead of the one in `latest`'
__ckpt_option zerotrain - module-only - 'load weights alone'
__ckpt_option zerotrain - not-strict - 'pass over parameters that are not on both sides'
__ckpt_option zerotrain - save-weights value 'fp32 weights at the end, as safetensors'
__ckpt_option zerotrain - save-model value 'a Hugging Face folder (with LoRA a PEFT folder)'
__ckpt_option zerotrain - param-groups value 'single, or decay: biases and norms without decay'
__ckpt_option zerotrain - freeze value 'parameters not to train, by comma'
__ckpt_option zerotrain - lora-rank value 'train adapters of this rank instead'
__ckpt_option zerotrain - lora-alpha value 'their scale times the rank (16)'
__ckpt_option zerotrain - lora-dropout value 'dropout before them (0)'
__ckpt_option zerotrain - lora-targets value 'linear maps that get one, by comma'
__ckpt_option zerotrain - dropout - 'use the dropout rates of the models config.json'
__ckpt_option zerotrain - activation-checkpointing - 'compute activations twice, keep few'
__ckpt_option zerotrain - seq value 'tokens of a sample (the models positions, at most 128 for text)'
__ckpt_option zerotrain - vocab value 'vocab.txt for text (beside the model)'
__ckpt_option zerotrain - cased - 'do not lower the case of text'
__ckpt_option zerotrain - token-dtype value 'of .bin files: uint16, uint32'
__ckpt_option zerotrain - no-shuffle - 'samples in the order of the file'
__ckpt_option zerotrain - seed value 'of drawing weights, shuffling and dropout (42)'
__ckpt_option zerotrain - evaluate - 'only evaluate --eval-data (or --data)'
__ckpt_option zerotrain - predict value 'only write the classes of --data as JSON lines'
__ckpt_option zerotrain - eval-every value 'evaluate after every N updates, and at the end'
__ckpt_option zerotrain - print-config - 'print the resolved configuration and stop'
__ckpt_option zerotrain - profile - 'tell at the end where the time went'
__ckpt_option zerotrain - device value 'cpu, cuda, or auto: a GPU where one can be used (cpu)'
__ckpt_option zerotrain - deterministic - 'equal bits in repeated runs, on a GPU too, where it costs time'
__ckpt_option zerotrain - threads value 'threads of a rank (processors / ranks of the node)'
__ckpt_option zerotrain - wait-limit value 'end the run when a rank does not come for N seconds (0: wait)'
__ckpt_option zerotrain - hostfile value 'start the run on these hosts (lines: NAME slots=N)'
__ckpt_option zerotrain - include value 'only these: host1@host2:0,2'
__ckpt_option zerotrain - exclude value 'all but these'
__ckpt_option zerotrain - num_nodes value 'the first N hosts'
__ckpt_option zerotrain - num_gpus value 'N ranks on each host'
__ckpt_option zerotrain - slots value 'launchers pass it: the GPU of each rank, by comma'
__ckpt_option zerotrain - local_rank value 'ignored: launchers pass it'
__ckpt_option zerotrain - args value 'more options from a JSON object'
__ckpt_option zerotrain - quiet - 'no progress'
__ckpt_option zerotrain - per_device_train_batch_size value 'for "auto" (8)'
__ckpt_option zerotrain - gradient_accumulation_steps value 'for "auto" (1)'
__ckpt_option zerotrain - learning_rate value 'for "auto" (5e-5)'
__ckpt_option zerotrain - adam_beta1 value 'for "auto" (0.9)'
__ckpt_option zerotrain - adam_beta2 value 'for "auto" (0.999)'
__ckpt_option zerotrain - adam_epsilon value 'for "auto" (1e-8)'
__ckpt_option zerotrain - weight_decay value 'for "auto" (0)'
__ckpt_option zerotrain - max_grad_norm value 'for "auto" (1)'
__ckpt_option zerotrain - warmup_steps value 'for "auto": steps, or below 1 a share (0)'
__ckpt_option zerotrain - fp16 - 'for "auto"'
__ckpt_option zerotrain - bf16 - 'for "auto"'
__ckpt_option zerotrain - help - 'this list'
__ckpt_option zerotrain - version - 'the version'

functions -e __ckpt_option
