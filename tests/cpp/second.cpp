/* SPDX-License-Identifier: Apache-2.0 */
/*
 * second.cpp: a part of the test that is C++17 whatever the rest is: both define what is inline in
 * ckpt.hpp, and neither may get the other's.
 */
#include "ckpt.hpp"

std::size_t second_count(const char *path);
bool second_throws(const char *path, int *code);

std::size_t second_count(const char *path)
{
    const ckpt::map m = ckpt::open(path);
    std::size_t n = 0;

    for (const ckpt::tensor t : m)
        n += t.shape().size() < 100;
    return n;
}

bool second_throws(const char *path, int *code)
{
    try {
        (void)ckpt::open(path);
    } catch (const ckpt::error &e) {
        *code = e.code();
        return true;
    }
    return false;
}
