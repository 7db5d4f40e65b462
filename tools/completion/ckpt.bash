# SPDX-License-Identifier: Apache-2.0
# ckpt.bash: completion for ckpt, zero_to_fp32, zero_to_torch and ds_to_universal in bash.
# tests/cli/man_options.sh fails while an option of a --help text is missing here.

_ckpt_options() {
    case "$1" in
    ls)
        echo "--long --all --bytes --include --exclude --tag --keep-slices --slice-rules --json" \
            "--quiet"
        ;;
    info) echo "--all --files --tag --keep-slices --slice-rules --json" ;;
    tree) echo "--depth --max-items --tag --json" ;;
    cat)
        echo "--dtype --range --all --no-crc --raw --stats --tag --keep-slices --slice-rules --json" \
            "--quiet"
        ;;
    convert)
        echo "--to --dtype --max-shard-size --include --exclude --rename --tag --with-optimizer" \
            "--no-frozen --exclude-frozen --as-file --require-crc --memory --jobs --force" \
            "--no-fsync --no-side-files --dry-run --json --quiet --keep-slices --slice-rules" \
            "--order --to-tag --drop-optimizer --keep-objects --drop-objects --ignore-copies" \
            "--strict --allow-overflow"
        ;;
    reshard)
        echo "--world --stage --dtype --sub-group-size --tag --to-tag --deepspeed-version" \
            "--drop-optimizer --keep-objects --drop-objects --join --slice-rules --order" \
            "--require-crc --memory --jobs --force --no-fsync --dry-run --json --quiet" \
            "--ignore-copies --strict --allow-overflow"
        ;;
    verify)
        echo "--tag --as-file --keep-slices --slice-rules --ignore-copies --require-crc --memory" \
            "--jobs --json --quiet"
        ;;
    diff)
        echo "--tol --ignore-dtype --include --exclude --with-optimizer --keep-slices" \
            "--slice-rules --json --quiet"
        ;;
    doctor) echo "--deep --fix-latest --all --memory --jobs --json --quiet" ;;
    clean) echo "--dry-run --force --json --quiet" ;;
    mem) echo "--stage --num-gpus --num-nodes --params --largest-layer --json" ;;
    formats) echo "--json --quiet" ;;
    zero_to_fp32 | zero_to_torch)
        [ "$1" = zero_to_torch ] && echo "--dtype"
        echo "--max_shard_size --safe_serialization --tag --exclude_frozen_parameters --debug" \
            "--keep_slices --slice_rules --ignore_copies --strict --memory --jobs --no-fsync --quiet"
        ;;
    zerotrain)
        echo "--deepspeed_config --strict-config --model --init --data --eval-data --max-steps --epochs" \
            "--metrics --save --save-every --keep --async-save --tag --load --load-tag" \
            "--module-only --not-strict --save-weights --save-model --param-groups --freeze" \
            "--lora-rank --lora-alpha --lora-dropout --lora-targets --dropout" \
            "--activation-checkpointing --seq --vocab --cased --token-dtype --no-shuffle" \
            "--seed --evaluate --predict --eval-every --print-config --profile --device --deterministic" \
            "--threads --wait-limit --hostfile --include --exclude --num_nodes" \
            "--num_gpus --slots --local_rank --args --quiet --per_device_train_batch_size" \
            "--gradient_accumulation_steps --learning_rate --adam_beta1 --adam_beta2" \
            "--adam_epsilon --weight_decay --max_grad_norm --warmup_steps --fp16 --bf16" \
            "--help --version"
        ;;
    ds_to_universal)
        echo "--input_folder --output_folder --num_extract_workers --num_merge_workers" \
            "--keep_temp_folder --no_strict --inject_missing_state --slice_rules" \
            "--deepspeed_version --keep_objects --drop_objects --ignore_copies" \
            "--strict --memory --jobs --no-fsync --quiet"
        ;;
    esac
    case "$1" in
    zerotrain | formats | help | version) ;;
    *) echo "--no-sandbox" ;;
    esac
    echo "--help --version"
}

# The names of tensors, for the second argument of cat.
_ckpt_tensors() {
    ckpt ls -q -- "$1" 2>/dev/null
}

_ckpt() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local verbs="ls info tree cat convert reshard verify diff doctor clean mem formats help version zero_to_fp32 zero_to_torch ds_to_universal"
    local verb=${COMP_WORDS[0]##*/}
    verb=${verb%.py}
    if [ "$verb" = ckpt ]; then
        if [ "$COMP_CWORD" -eq 1 ]; then
            mapfile -t COMPREPLY < <(compgen -W "$verbs --help --version" -- "$cur")
            return
        fi
        verb=${COMP_WORDS[1]}
    fi
    if [ "$verb" = help ]; then
        mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$cur")
        return
    fi
    case "$prev" in
    --to)
        mapfile -t COMPREPLY < <(compgen -W "torch safetensors npz hf hf-bin universal zero" -- "$cur")
        return
        ;;
    --stage)
        mapfile -t COMPREPLY < <(compgen -W "1 2 3" -- "$cur")
        return
        ;;
    --dtype)
        mapfile -t COMPREPLY < <(compgen -W "fp32 bf16 fp16 fp64" -- "$cur")
        return
        ;;
    esac
    case "$cur" in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(_ckpt_options "$verb")" -- "$cur") ;;
    *)
        if [ "$verb" = cat ] && [ -e "$prev" ]; then
            mapfile -t COMPREPLY < <(compgen -W "$(_ckpt_tensors "$prev")" -- "$cur")
        else
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi
        ;;
    esac
}

complete -F _ckpt ckpt zerotrain zero_to_fp32 zero_to_torch zero_to_fp32.py zero_to_torch.py ds_to_universal ds_to_universal.py
