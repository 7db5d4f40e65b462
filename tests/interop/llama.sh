#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# llama.cpp for tests: its library, its converter, its quantizer, and a program that runs models, once.
#
#   llama.sh PYTHON DIR
#
# Sources come with llama-cpp-python's archive on PyPI.  Compiled without optimization of the C++ parts, whose speed does not matter
# here; the library that computes is.
set -eu
python=$1 dir=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$work/source/vendor/llama.cpp

sources() {
    [ ! -e "$source" ] || return 0
    "$python" -m pip download -q --no-deps --no-binary :all: -d "$work" llama-cpp-python
    mkdir "$work/source"
    tar xzf "$work"/llama_cpp_python-*.tar.gz -C "$work/source" --strip-components 1
}

if [ ! -e "$dir/done" ]; then
    sources
    cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O2 -DCMAKE_CXX_FLAGS=-O0 \
        -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_COMMON=OFF -DBUILD_SHARED_LIBS=ON -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
        >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
    ninja -C "$work/build" -j "$(nproc)" llama >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
    rm -rf "$dir"
    mkdir -p "$dir/include"
    cp -P "$work"/build/bin/lib*.so* "$dir"
    cp "$source"/include/*.h "$source"/ggml/include/*.h "$dir/include"
    cp -r "$source"/{convert_hf_to_gguf.py,conversion,gguf-py} "$dir"
    touch "$dir/done"
fi
if [ ! -e "$dir/convert_lora_to_gguf.py" ]; then
    sources
    cp "$source/convert_lora_to_gguf.py" "$dir"
fi
# the quantizer alone needs little of llama.cpp's common library
if [ ! "$dir/llama_quantize" -nt "$here/llama_quantize.cpp" ]; then
    sources
    c++ -std=c++17 -O0 -I "$source/include" -I "$source/ggml/include" -I "$source/common" -I "$source/vendor" -I "$source/src" \
        "$source"/tools/quantize/{quantize,main}.cpp "$source/common/imatrix-loader.cpp" "$here/llama_quantize.cpp" \
        -o "$dir/llama_quantize" -L "$dir" -lllama -lggml -lggml-base -Wl,-rpath,'$ORIGIN' >"$work/log" 2>&1 ||
        { tail -20 "$work/log"; exit 1; }
fi
if [ ! "$dir/llama_run" -nt "$here/llama_run.c" ]; then
    cc -std=c11 -O1 -I "$dir/include" "$here/llama_run.c" -o "$dir/llama_run" -L "$dir" -lllama -lggml -lggml-base -Wl,-rpath,'$ORIGIN'
fi
