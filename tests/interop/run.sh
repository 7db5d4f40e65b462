#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Load what we wrote with the real frameworks, and read what they write now.
#
#   run.sh [--install | --latest] BUILD_BIN
#
# Uses the Python environment in CKPT_INTEROP_VENV (default: ~/.cache/ckpt-interop), made there with --install (torch, deepspeed,
# safetensors, transformers from PyPI, as versions.txt has them; --latest: the newest releases; about 5.6 GB); and Debian's python3-torch,
# if present, for an old torch.
set -u
install='' pinned=(-c tests/interop/versions.txt)
case "${1:-}" in
--install) install=yes && shift ;;
--latest) install=yes pinned=() && shift ;;
esac
bin=$(cd "${1:-build/bin}" && pwd) || exit 2
venv=${CKPT_INTEROP_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ckpt-interop}
status=0

if [ -n "$install" ]; then
    sh tools/deps.sh interop
    if ! "$venv/bin/python" -c 'import torch, deepspeed, safetensors, transformers, accelerate, peft' 2>/dev/null; then
        python3 -m venv "$venv" && "$venv/bin/pip" install -q "${pinned[@]}" torch deepspeed safetensors transformers accelerate peft numpy || status=1
    fi
    # its own choice of a transformers is not wanted
    "$venv/bin/python" -c 'import compressed_tensors' 2>/dev/null ||
        "$venv/bin/pip" install -q "${pinned[@]}" --no-deps compressed-tensors loguru || status=1
    "$venv/bin/python" -c 'import prodigyopt' 2>/dev/null || "$venv/bin/pip" install -q "${pinned[@]}" --no-deps prodigyopt || status=1
    "$venv/bin/python" -c 'import schedulefree' 2>/dev/null || "$venv/bin/pip" install -q "${pinned[@]}" --no-deps schedulefree || status=1
    # what llama.cpp's converter reads tokenizers with, and transformers GGUF files
    "$venv/bin/python" -c 'import gguf, sentencepiece' 2>/dev/null || "$venv/bin/pip" install -q "${pinned[@]}" gguf sentencepiece || status=1
    "$venv/bin/python" -c 'import lightning' 2>/dev/null || "$venv/bin/pip" install -q "${pinned[@]}" lightning || status=1
    "$venv/bin/python" -c 'import sklearn' 2>/dev/null || "$venv/bin/pip" install -q "${pinned[@]}" scikit-learn || status=1
    # a venv of its own: with its many small packages it must not choose versions for the others
    "$venv/signing/bin/python" -c 'import model_signing' 2>/dev/null ||
        { python3 -m venv "$venv/signing" && "$venv/signing/bin/pip" install -q "${pinned[@]}" model-signing pyopenssl; } || status=1
    # MLX on processors; only its metal part needs a Mac
    "$venv/bin/python" -c 'import mlx.core, mlx_lm' 2>/dev/null ||
        "$venv/bin/pip" install -q "${pinned[@]}" --no-deps mlx mlx-cpu mlx-lm || status=1
    # in a folder of its own: a second one, mcore012, with another version is tried too
    [ -d "$venv/mcore016" ] ||
        "$venv/bin/pip" install -q "${pinned[@]}" --no-deps --target "$venv/mcore016" megatron-core || status=1
    # its models need a GPU, its import of weights does not
    [ -d "$venv/mbridge" ] || "$venv/bin/pip" install -q "${pinned[@]}" --no-deps --target "$venv/mbridge" mbridge ||
        echo "mbridge could not be installed"
    # headers for the GPU plugin (tests/gpu/absent)
    [ -d "$venv/cudnn_frontend" ] ||
        "$venv/bin/pip" install -q "${pinned[@]}" --no-deps --target "$venv/cudnn_frontend" nvidia-cudnn-frontend ||
        echo "cuDNN's headers could not be installed"
    # in a folder of its own, because transformers asks whether it is there
    [ -d "$venv/torchao" ] || "$venv/bin/pip" install -q "${pinned[@]}" --no-deps --target "$venv/torchao" torchao || status=1
    # in a folder of its own, too, because few parts need it
    [ -d "$venv/diffusers" ] ||
        "$venv/bin/pip" install -q "${pinned[@]}" --no-deps --target "$venv/diffusers" diffusers importlib_metadata zipp Pillow || status=1
    "$venv/bin/python" -c 'import bitsandbytes' 2>/dev/null || "$venv/bin/pip" install -q "${pinned[@]}" bitsandbytes || status=1
fi

build=$(dirname "$bin")
make -s B="$build" "$build/gen_zero" "$build/golden_map" "$build/ioshim.so" "$build/wheel/ckpt" "$build/wheel/libckpt.so.0" || status=1

# part SCRIPT ARGUMENT...: run it, and say what it took
part() {
    local TIMEFORMAT
    TIMEFORMAT="-- $(basename "$1"): %0R s, of a processor %0U + %0S s"
    { time "$venv/bin/python" "$@" || status=1; } 2>&1
}

# turn K PATH...: whether it runs.  In CI, which sets CKPT_TURN (tests/turns.py), in its turn K of three, and after the last twenty
# commits changed something at PATH.
turn() {
    local own=$1
    shift
    [ -z "${CKPT_TURN:-}" ] || [ "${CKPT_TURN%/*}" = "$own" ] ||
        ! git rev-parse -q --verify HEAD~20 >/dev/null 2>&1 || [ -n "$(git diff --name-only HEAD~20 HEAD -- "$@" | head -n 1)" ]
}

# Lists that take turns inside of a part that itself has turn K only would always have the same third of their cases.
inner=0/1
[ -z "${CKPT_TURN:-}" ] || inner=$(($(git rev-list --count HEAD 2>/dev/null || echo 0) / 3 % 3))/3

if [ -x "$venv/bin/python" ]; then
    export DS_ACCELERATOR=cpu
    # `make check` has installed the wheel already
    part tests/python/run.py --without test_wheel --without test_abi --bin "$bin"
    part tests/interop/load.py --bin "$bin" tests/fixtures ../shared/fixtures
    part tests/interop/dcp.py --bin "$bin" tests/fixtures
    part tests/interop/hf_sharded.py --bin "$bin" tests/fixtures
    part tests/interop/optimizers.py --bin "$bin"
    # these optimizers and AutoEP's experts have files of their own in the folders named here
    ! turn 1 formats/deepspeed formats/training || part tests/interop/bnb8.py --bin "$bin"
    part tests/interop/megatron_grids.py --bin "$bin"
    part tests/interop/fsdp_ranks.py --bin "$bin" tests/fixtures
    part tests/interop/real_deepspeed.py --bin "$bin"
    ! turn 0 tools/mount libckpt/access libckpt/copy || part tests/interop/mounts.py --bin "$bin"
    part tests/interop/warm_start.py --bin "$bin"
    part tests/interop/weights.py --bin "$bin"
    part tests/interop/model_folders.py --bin "$bin" --shim "$build/ioshim.so"
    part tests/interop/hub_names.py --bin "$bin"
    part tests/interop/trainer_names.py --bin "$bin"
    part tests/interop/factors.py --bin "$bin"
    part tests/interop/class_reports.py --bin "$bin"
    part tests/interop/generate.py --bin "$bin"
    part tests/interop/mem.py --bin "$bin"
    make -s B="$build" "$build/encode" || status=1
    part tests/interop/tokenizers_equal.py --encode "$build/encode"
    part tests/interop/chat_equal.py --encode "$build/encode"
    part tests/interop/shapes.py --bin "$bin"
    if [ -x "$venv/signing/bin/python" ]; then
        venv=$venv/signing part tests/interop/signatures.py --bin "$bin"
    else
        echo "-- signatures.py: skipped ($venv/signing is absent; run with --install)"
    fi
    part tests/interop/quantized.py --bin "$bin"
    part tests/interop/quantize_to.py --bin "$bin"
    if [ -d "$venv/torchao" ]; then
        part tests/interop/torchao_folders.py --bin "$bin" "$venv/torchao"
    else
        echo "-- torchao_folders.py: skipped ($venv/torchao is absent; run with --install)"
    fi
    # two minutes once; without it, the reason is said and the rest goes on
    if ! turn 0 formats/gguf formats/hf libckpt/transform tools/share/maps formats/peft tests/interop/llama.sh tests/interop/llama_cpp.py; then
        echo "-- llama_cpp.py: not this turn"
    elif bash tests/interop/llama.sh "$venv/bin/python" "$venv/llama-cpp"; then
        CKPT_TURN=$inner part tests/interop/llama_cpp.py --bin "$bin" --llama "$venv/llama-cpp"
        part tests/interop/lora_gguf.py --bin "$bin" --llama "$venv/llama-cpp"
        CKPT_TURN=$inner part tests/interop/llama_architectures.py --bin "$bin" --llama "$venv/llama-cpp"
        CKPT_TURN=$inner part tests/interop/mmproj.py --bin "$bin" --llama "$venv/llama-cpp"
    else
        echo "-- llama.cpp cannot be built here: GGUF files are not tried with it"
    fi
    if ! turn 2 formats/megatron formats/dcp tools/share/maps tests/interop/mcore.py; then
        echo "-- mcore.py: not this turn"
    elif [ -d "$venv/mcore016" ]; then
        part tests/interop/mcore.py --bin "$bin" "$venv"/mcore0*
        if [ -d "$venv/mbridge" ]; then
            part tests/interop/mcore_import.py --bin "$bin" "$venv/mcore016" "$venv/mbridge"
        else
            echo "-- mcore_import.py: skipped ($venv/mbridge is absent; run with --install)"
        fi
    else
        echo "-- mcore.py: skipped ($venv/mcore016 is absent; run with --install)"
    fi
    part tests/interop/fsdp_trainers.py --bin "$bin"
    ! turn 1 formats/deepspeed formats/training || CKPT_TURN=$inner part tests/interop/muon.py --bin "$bin"
    ! turn 1 formats/deepspeed formats/training || part tests/interop/prodigy.py --bin "$bin"
    # the script without names takes a quarter of an hour
    ! turn 2 formats/deepspeed formats/training formats/universal || part tests/interop/autoep.py --bin "$bin" qwen3_z1_w2 qwen3_z3_w2
    part tests/interop/kin.py --bin "$bin"
    part tests/interop/adapters.py --bin "$bin"
    if [ -d "$venv/diffusers" ]; then
        part tests/interop/diffusion.py --bin "$bin" "$venv/diffusers"
    else
        echo "-- diffusion.py: skipped ($venv/diffusers is absent; run with --install)"
    fi
    # mergekit wants versions of its own: a venv beside, whose programs MERGEKIT names
    part tests/interop/merge.py --bin "$bin"
    # a new seed in each run, unless one is given
    part tests/interop/differential.py --bin "$bin" --seconds "${DIFFERENTIAL_SECONDS:-120}" \
        ${DIFFERENTIAL_COUNT:+--count "$DIFFERENTIAL_COUNT"} ${DIFFERENTIAL_SEED:+--seed "$DIFFERENTIAL_SEED"}
    if [ -d ../shared/golden ]; then
        part tests/interop/engine.py --bin "$bin"
        # after it: what DeepSpeed compiles for its optimizers is there then
        part tests/interop/engine_resume.py --bin "$bin" ../shared/golden
    fi
    fixtures=$([ -d ../shared/fixtures ] && echo ../shared/fixtures || echo tests/fixtures)
    part tests/golden/reshard_roundtrip.py --bin "$bin" "$fixtures"
    if [ -d ../shared/fixtures ]; then
        part tests/interop/reshard_resume.py --bin "$bin" ../shared/fixtures
        part tests/interop/local_disks.py --bin "$bin" ../shared/fixtures
        part tests/interop/fsdp_resume.py --bin "$bin" ../shared/fixtures
        part tests/interop/reshard_upgrade.py --bin "$bin" ../shared/fixtures
        part tests/interop/reshard_any.py --bin "$bin" ../shared/fixtures
        part tests/interop/universal.py --bin "$bin" ../shared/fixtures
        part tests/interop/ds_swap.py "$(dirname "$bin")/golden_map" ../shared/fixtures
    fi
else
    echo "interop: skipped the current torch, safetensors, transformers, DeepSpeed ($venv is absent; run with --install)"
fi
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    /usr/bin/python3 tests/interop/load.py --old --bin "$bin" tests/fixtures || status=1
else
    echo "interop: skipped Debian's python3-torch (absent)"
fi
exit $status
