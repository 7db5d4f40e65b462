/* SPDX-License-Identifier: Apache-2.0 */
/*
 * async_copy.cpp: owns copies to shared memory that go on beside their thread (cp.async), for the
 * emulation: they arrive when the thread waits for them and no earlier, after all other threads
 * that can go on have done so, and until then their places hold what nobody can have meant.
 *
 * Reported are a copy that still is on its way when its thread ends (on a GPU it may land in what
 * another block has there by then), and one whose place somebody has written to meanwhile.
 */
#include "tensor_core.h"

#include <vector>

struct as_copy {
    unsigned char *to;
    const unsigned char *from; /* NULL: zeros */
    unsigned batch;
};

/* Of one thread: its copies, oldest first, and the batch that the next one belongs to. */
struct as_thread {
    std::vector<as_copy> copies;
    unsigned batch;
};

static as_thread as_threads[1024];

void zt_emu_copy16(void *to, const void *from, bool there)
{
    as_thread *t = &as_threads[threadIdx.x];
    if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0) {
        zt_emu_die("cp.async: an address is no multiple of 16 bytes");
    }
    memset(to, 0xFF, 16); // NaN in every type
    t->copies.push_back(
        {(unsigned char *)to, there ? (const unsigned char *)from : NULL, t->batch});
}

void zt_emu_copy_batch(void)
{
    as_threads[threadIdx.x].batch++;
}

void zt_emu_copy_wait(unsigned but)
{
    static const unsigned char nobody[16] = {255, 255, 255, 255, 255, 255, 255, 255,
                                             255, 255, 255, 255, 255, 255, 255, 255};
    zt_emu_later();
    as_thread *t = &as_threads[threadIdx.x];
    size_t n = 0;
    while (n < t->copies.size() && t->copies[n].batch + but < t->batch) {
        const as_copy *c = &t->copies[n++];
        if (memcmp(c->to, nobody, 16) != 0) {
            zt_emu_die("cp.async: somebody wrote to where a copy was under way");
        }
        if (c->from) {
            memcpy(c->to, c->from, 16);
        } else {
            memset(c->to, 0, 16);
        }
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + (long)n);
}

void zt_emu_copy_end(void)
{
    as_thread *t = &as_threads[threadIdx.x];
    if (!t->copies.empty()) {
        zt_emu_die("cp.async: a thread ends before its copies have arrived");
    }
    t->batch = 0;
}
