#compdef ckpt zero_to_fp32 zero_to_torch ds_to_universal zerotrain
# SPDX-License-Identifier: Apache-2.0
# ckpt.zsh: completion for ckpt and its drop-ins in zsh; installed as _ckpt.
# tests/cli/man_options.sh fails while an option of a --help text is missing here.

_ckpt_dtypes='(fp32 bf16 fp16 fp64)'

_ckpt_tensor_names() {
    local -a names
    names=(${(f)"$(ckpt ls -q -- ${line[1]} 2>/dev/null)"})
    compadd -a names
}

_ckpt_verb() {
    local -a common tag filter size slices training copies
    copies=('--ignore-copies[masters are not compared with 16-bit copies]')
    common=('(-h --help)'{-h,--help}'[show the options]' '(-V --version)'{-V,--version}'[show the version]')
    [[ $1 = (formats|zerotrain) ]] || common+=('--no-sandbox[keep all rights]')
    tag=('(-t --tag)'{-t,--tag}'[this tag instead of the latest]:tag')
    filter=('*--include[only names that match]:glob' '*--exclude[no names that match]:glob')
    size=('--memory[for buffers, in all]:size' '(-j --jobs)'{-j,--jobs}'[threads]:number')
    slices=('--slice-rules[how slices are joined]:file:_files')
    training=('--order[names in order, or stored]:file:_files' '--to-tag[name of the new tag]:name' \
        '--drop-optimizer[moments of zero]' '--keep-objects[of unknown classes go along]' \
        '--drop-objects[leave them out]' '--strict[warnings are errors]' \
        '--allow-overflow[values may be lost]' '(-f --force)'{-f,--force}'[replace outputs]' \
        '--no-fsync[do not wait for the disk]' '(-n --dry-run)'{-n,--dry-run}'[print the plan]')
    case $1 in
    ls) _arguments $common $tag $filter $slices '--keep-slices[slices one by one]' '(-l --long)'{-l,--long}'[role and place]' \
        '(-a --all)'{-a,--all}'[also optimizer state]' '(-b --bytes)'{-b,--bytes}'[exact sizes]' \
        '--json[print JSON]' '(-q --quiet)'{-q,--quiet}'[names only]' '1:checkpoint:_files' ;;
    info) _arguments $common $tag $slices '--keep-slices[slices one by one]' '(-a --all)'{-a,--all}'[also optimizer state]' \
        '(-f --files)'{-f,--files}'[every file]' '--json[print JSON]' '1:checkpoint:_files' ;;
    tree) _arguments $common $tag '(-d --depth)'{-d,--depth}'[levels]:number' \
        '(-n --max-items)'{-n,--max-items}'[items of a container]:number' '--json[print JSON]' \
        '1:checkpoint:_files' '2:path of keys' ;;
    cat) _arguments $common $tag "--dtype[convert first]:dtype:$_ckpt_dtypes" \
        '(-r --range)'{-r,--range}'[elements]:first\:count' '(-a --all)'{-a,--all}'[every element]' \
        '--no-crc[read only what is shown]' '--raw[bytes]' '(-s --stats)'{-s,--stats}'[statistics]' '--json[print JSON]' \
        $slices '--keep-slices[slices one by one]' \
        '(-q --quiet)'{-q,--quiet}'[values only]' '1:checkpoint:_files' '2:tensor:_ckpt_tensor_names' ;;
    convert) _arguments $common $tag $filter $size $slices $training $copies \
        '--to[format]:format:(torch safetensors npz hf hf-bin universal zero)' \
        '--keep-slices[slices stay apart]' \
        "--dtype[of floating tensors]:dtype:$_ckpt_dtypes" '--max-shard-size[largest file]:size' \
        '--rename[rules]:file:_files' '--with-optimizer[also optimizer state]' \
        '--no-frozen[without frozen parameters]' '--exclude-frozen[without frozen parameters]' \
        '--as-file[a shard alone]' '--require-crc[refuse records without CRC-32]' \
        '--no-side-files[no config and tokenizer]' \
        '--json[print JSON]' '(-q --quiet)'{-q,--quiet}'[warnings and errors only]' \
        '1:checkpoint:_files' '2:output:_files' ;;
    reshard) _arguments $common $tag $size $slices $training $copies \
        '(-w --world)'{-w,--world}'[data-parallel ranks]:number' \
        '(-s --stage)'{-s,--stage}'[ZeRO stage]:stage:(1 2 3)' \
        '--dtype[to train in]:dtype:(fp16 bf16 fp32)' '--sub-group-size[elements]:number' \
        '--deepspeed-version[write for it]:release' '--join[join tensor-parallel slices]' \
        '--require-crc[refuse records without CRC-32]' '--json[print JSON]' \
        '(-q --quiet)'{-q,--quiet}'[warnings and errors only]' '1:checkpoint:_files' \
        '2:run folder:_files' ;;
    verify) _arguments $common $tag $size $slices $copies '--keep-slices[slices one by one]' '--as-file[a shard alone]' \
        '--require-crc[records without CRC-32 are errors]' '--json[print JSON]' \
        '(-q --quiet)'{-q,--quiet}'[errors only]' '1:checkpoint:_files' ;;
    diff) _arguments $common $filter $slices '--keep-slices[slices one by one]' '--tol[largest distance]:number' \
        '--ignore-dtype[dtypes may differ]' '--with-optimizer[also optimizer state]' \
        '--json[print JSON]' '(-q --quiet)'{-q,--quiet}'[names only]' '1:checkpoint:_files' \
        '2:checkpoint:_files' ;;
    doctor) _arguments $common $size '(-d --deep)'{-d,--deep}'[read everything]' \
        '--fix-latest[let latest name the newest whole tag]' \
        '(-a --all)'{-a,--all}'[every problem]' '--json[print JSON]' \
        '(-q --quiet)'{-q,--quiet}'[names of whole tags only]' '1:run:_files -/' ;;
    mem) _arguments $common '--stage=[only this ZeRO stage]:stage:(2 3)' '--num-gpus=[GPUs of each node]:count:' \
        '--num-nodes=[nodes]:count:' '--params=[parameters of the model]:count:' \
        '--largest-layer=[parameters of its largest layer]:count:' '--json[print JSON]' '1:checkpoint:_files' ;;
    clean) _arguments $common '(-n --dry-run)'{-n,--dry-run}'[remove nothing]' \
        '(-f --force)'{-f,--force}'[young files too]' '--json[print JSON]' \
        '(-q --quiet)'{-q,--quiet}'[only what is kept]' '1:folder:_files -/' ;;
    formats) _arguments $common '--json[print JSON]' '(-q --quiet)'{-q,--quiet}'[names only]' ;;
    zero_to_fp32 | zero_to_torch)
        local -a dtype
        [[ $1 = zero_to_torch ]] && dtype=('--dtype[required]:dtype:(bf16 fp16 fp32)')
        _arguments $common $tag $size $dtype '--max_shard_size[largest file]:size' \
            '--safe_serialization[write safetensors]' '--exclude_frozen_parameters[without them]' \
            '(-d --debug)'{-d,--debug}'[print every parameter]' \
            '--keep_slices[slices one by one]' '--slice_rules[how slices are joined]:file:_files' \
            '--ignore_copies[masters are not compared with 16-bit copies]' \
            '--no-fsync[do not wait for the disk]' '--strict[warnings are errors]' \
            '(-q --quiet)'{-q,--quiet}'[warnings and errors only]' '1:checkpoint:_files' \
            '2:output:_files' ;;
    zerotrain) _arguments '--deepspeed_config[ds_config.json (HJSON, or base64 of it)]:value:_files' \
        '--strict-config[keys that are not known are errors]' \
        '--model[config.json of a model, or its folder]:value:_files' \
        '--init[first weights, any checkpoint (default, drawn by --seed)]:value:_files' \
        '--data[training data, .bin .npy .safetensors .tsv .csv .jsonl]:value:_files' \
        '--eval-data[data to evaluate]:value:_files' \
        '--max-steps[updates of the whole run, resumed ones included]:value:_files' \
        '--epochs[passes over the data, without --max-steps (1)]:value:_files' \
        '--metrics[a JSON line for each update]:value:_files' \
        '--save[write checkpoints there, at the end and when stopped]:value:_files' \
        '--save-every[and after every N updates]:value:_files' \
        '--keep[keep the newest K checkpoints only]:value:_files' \
        '--async-save[go on while a checkpoint is written]' \
        '--tag[tag of the checkpoint (global_stepN)]:value:_files' \
        '--load[resume from a checkpoint of any kind, stage and world]:value:_files' \
        '--load-tag[that tag instead of the one in `latest`]:value:_files' \
        '--module-only[load weights alone]' \
        '--not-strict[pass over parameters that are not on both sides]' \
        '--save-weights[fp32 weights at the end, as safetensors]:value:_files' \
        '--save-model[a Hugging Face folder (with LoRA a PEFT folder)]:value:_files' \
        '--param-groups[single, or decay, biases and norms without decay]:value:_files' \
        '--freeze[parameters not to train, by comma]:value:_files' \
        '--lora-rank[train adapters of this rank instead]:value:_files' \
        '--lora-alpha[their scale times the rank (16)]:value:_files' \
        '--lora-dropout[dropout before them (0)]:value:_files' \
        '--lora-targets[linear maps that get one, by comma]:value:_files' \
        '--dropout[use the dropout rates of the models config.json]' \
        '--activation-checkpointing[compute activations twice, keep few]' \
        '--seq[tokens of a sample (the models positions, at most 128 for text)]:value:_files' \
        '--vocab[vocab.txt for text (beside the model)]:value:_files' \
        '--cased[do not lower the case of text]' \
        '--token-dtype[of .bin files, uint16, uint32]:value:_files' \
        '--no-shuffle[samples in the order of the file]' \
        '--seed[of drawing weights, shuffling and dropout (42)]:value:_files' \
        '--evaluate[only evaluate --eval-data (or --data)]' \
        '--predict[only write the classes of --data as JSON lines]:value:_files' \
        '--eval-every[evaluate after every N updates, and at the end]:value:_files' \
        '--print-config[print the resolved configuration and stop]' \
        '--profile[tell at the end where the time went]' \
        '--device[cpu, cuda, or auto\: a GPU where one can be used (cpu)]:value:(cpu cuda auto)' \
        '--deterministic[equal bits in repeated runs, on a GPU too, where it costs time]' \
        '--threads[threads of a rank (processors / ranks of the node)]:value:_files' \
        '--wait-limit[end the run when a rank does not come for N seconds (0\: wait)]:value:_files' \
        '--hostfile[start the run on these hosts (lines, NAME slots=N)]:value:_files' \
        '--include[only these, host1@host2,0,2]:value:_files' \
        '--exclude[all but these]:value:_files' \
        '--num_nodes[the first N hosts]:value:_files' \
        '--num_gpus[N ranks on each host]:value:_files' \
        '--slots[launchers pass it, the GPU of each rank, by comma]:value:_files' \
        '--local_rank[ignored, launchers pass it]:value:_files' \
        '--args[more options from a JSON object]:value:_files' \
        '--quiet[no progress]' \
        '--per_device_train_batch_size[for "auto" (8)]:value:_files' \
        '--gradient_accumulation_steps[for "auto" (1)]:value:_files' \
        '--learning_rate[for "auto" (5e-5)]:value:_files' \
        '--adam_beta1[for "auto" (0.9)]:value:_files' \
        '--adam_beta2[for "auto" (0.999)]:value:_files' \
        '--adam_epsilon[for "auto" (1e-8)]:value:_files' \
        '--weight_decay[for "auto" (0)]:value:_files' \
        '--max_grad_norm[for "auto" (1)]:value:_files' \
        '--warmup_steps[for "auto", steps, or below 1 a share (0)]:value:_files' \
        '--fp16[for "auto"]' \
        '--bf16[for "auto"]' \
        '--help[this list]' \
        '--version[the version]' ;;
    ds_to_universal) _arguments $common $size '--input_folder[the checkpoint]:folder:_files -/' \
        '--output_folder[what to make]:folder:_files -/' \
        '--num_extract_workers[not needed]:number' '--num_merge_workers[not needed]:number' \
        '--keep_temp_folder[there is none]' '--no_strict[patterns without a match only warn]' \
        '--inject_missing_state[join slices by their first axis]' '--slice_rules[how slices are joined]:file:_files' \
        '--deepspeed_version[write for it]:version' \
        '--keep_objects[objects of unknown classes go along]' '--drop_objects[they are left out]' \
        '--ignore_copies[masters are not compared with 16-bit copies]' \
        '--no-fsync[do not wait for the disk]' '--strict[warnings are errors]' \
        '(-q --quiet)'{-q,--quiet}'[warnings and errors only]' ;;
    help) _arguments $common "1:command:(ls info tree cat convert reshard verify diff doctor clean mem formats)" ;;
    *) _arguments $common ;;
    esac
}

_ckpt() {
    local name=${${words[1]:t}%.py}
    if [[ $name != ckpt ]]; then
        _ckpt_verb $name
    elif (( CURRENT == 2 )); then
        compadd ls info tree cat convert reshard verify diff doctor clean mem formats help version zero_to_fp32 \
            zero_to_torch ds_to_universal --help --version
    else
        shift words
        (( CURRENT-- ))
        _ckpt_verb ${words[1]}
    fi
}

_ckpt "$@"
