#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# llama.cpp for tests: its library, its converter and a program that runs models, once.
#
#   llama.sh PYTHON DIR
#
# Sources come with llama-cpp-python's archive on PyPI.  Compiled without optimization of the C++ parts, whose speed does not matter
# here; the library that computes is.
set -eu
python=$1 dir=$2
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -e "$dir/done" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$python" -m pip download -q --no-deps --no-binary :all: -d "$work" llama-cpp-python
    mkdir "$work/source"
    tar xzf "$work"/llama_cpp_python-*.tar.gz -C "$work/source" --strip-components 1
    cmake -G Ninja -S "$work/source/vendor/llama.cpp" -B "$work/build" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O2 -DCMAKE_CXX_FLAGS=-O0 \
        -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_COMMON=OFF -DBUILD_SHARED_LIBS=ON -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
        >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
    ninja -C "$work/build" -j "$(nproc)" llama >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
    rm -rf "$dir"
    mkdir -p "$dir/include"
    cp -P "$work"/build/bin/lib*.so* "$dir"
    cp "$work"/source/vendor/llama.cpp/include/*.h "$work"/source/vendor/llama.cpp/ggml/include/*.h "$dir/include"
    cp -r "$work"/source/vendor/llama.cpp/{convert_hf_to_gguf.py,conversion,gguf-py} "$dir"
    touch "$dir/done"
fi
if [ ! "$dir/llama_run" -nt "$here/llama_run.c" ]; then
    cc -std=c11 -O1 -I "$dir/include" "$here/llama_run.c" -o "$dir/llama_run" -L "$dir" -lllama -lggml -lggml-base -Wl,-rpath,'$ORIGIN'
fi
