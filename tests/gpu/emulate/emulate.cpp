/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulate.cpp: owns the emulated GPU: its threads, its memory, and the runtime's functions.
 *
 * One lock stands for the device: kernels and copies of all host threads take turns.
 */
#include "tensor_core.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define EM_HIDDEN  __attribute__((visibility("hidden")))
#define EM_THREADS 1024u
#define EM_STACK   (128u << 10)

EM_HIDDEN uint3 zt_emu_thread, zt_emu_block;
EM_HIDDEN dim3 zt_emu_block_size, zt_emu_grid_size;
EM_HIDDEN char *zt_emu_shared;

void zt_emu_die(const char *text)
{
    fprintf(stderr, "emulated GPU: %s (block %u %u %u, thread %u %u %u)\n", text, zt_emu_block.x,
            zt_emu_block.y, zt_emu_block.z, zt_emu_thread.x, zt_emu_thread.y, zt_emu_thread.z);
    abort();
}

/* ---- stacks -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* What a stack resumes at: the registers that a function must keep, and a return address. */
typedef void *em_place;

extern "C" EM_HIDDEN void zt_emu_switch(em_place *from, em_place to);
__asm__(".text\n"
        ".globl zt_emu_switch\n"
        ".hidden zt_emu_switch\n"
        ".type zt_emu_switch, @function\n"
        "zt_emu_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size zt_emu_switch, . - zt_emu_switch\n");

/* The first switch "returns" into entry, with the stack as after a call. */
static em_place em_begin(char *stack, void (*entry)(void))
{
    void **top = (void **)(stack + EM_STACK) - 2;
    *top = (void *)entry;
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    return top;
}
#else
typedef ucontext_t *em_place;

static void zt_emu_switch(em_place *from, em_place to)
{
    ucontext_t here; // lives as long as this call: until somebody switches back
    *from = &here;
    swapcontext(&here, to);
}

static em_place em_begin(char *stack, void (*entry)(void))
{
    ucontext_t *c = (ucontext_t *)calloc(1, sizeof *c);
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = EM_STACK;
    makecontext(c, entry, 0);
    return c;
}
#endif

/* ---- a block ------------------------------------------------------------------------------- */

typedef enum em_state { EM_READY, EM_AT_BARRIER, EM_AT_WARP, EM_LATER, EM_DONE } em_state;

typedef struct em_thread {
    em_place place;
    em_state state;
    uint3 index;
} em_thread;

/* Lanes of a warp that are about to meet; several groups of one warp may, by their lowest lane. */
typedef struct em_meeting {
    unsigned arrived, mask;
    void (*fn)(void **args, unsigned mask);
    void *args[32];
} em_meeting;

static pthread_mutex_t em_lock;
static pthread_once_t em_once = PTHREAD_ONCE_INIT;

static struct {
    em_thread thread[EM_THREADS];
    em_meeting meeting[EM_THREADS / 32][32];
    unsigned n, n_alive, n_waiting, current, yes, last_yes;
    em_place scheduler;
    void (*fn)(void *);
    void *arg;
    char *stacks, *shared;
    size_t n_shared; /* bytes of it that the kernel has asked for */
    bool reverse;
} em;

/* A stack runs the kernel once for each block it is woken for. */
static void em_entry(void)
{
    for (;;) {
        em.fn(em.arg);
        zt_emu_copy_end();
        em_thread *t = &em.thread[em.current];
        t->state = EM_DONE;
        zt_emu_switch(&t->place, em.scheduler);
    }
}

static void em_wait(em_state why)
{
    em_thread *t = &em.thread[em.current];
    t->state = why;
    zt_emu_switch(&t->place, em.scheduler);
}

void zt_emu_later(void)
{
    em_wait(EM_LATER);
}

/* Those who gave way go on; false: nobody did. */
static bool em_wake_later(void)
{
    bool any = false;
    for (unsigned i = 0; i < em.n; i++) {
        if (em.thread[i].state == EM_LATER) {
            em.thread[i].state = EM_READY;
            any = true;
        }
    }
    return any;
}

unsigned zt_emu_barrier(int yes)
{
    em.yes += yes != 0;
    em.n_waiting++;
    em_wait(EM_AT_BARRIER);
    return em.last_yes;
}

void zt_emu_warp(unsigned mask, void *arg, void (*fn)(void **args, unsigned mask))
{
    unsigned warp = em.current / 32, lane = em.current % 32, first = warp * 32;
    unsigned there = em.n - first >= 32 ? 0xffffffffu : (1u << (em.n - first)) - 1;
    unsigned need = mask & there;
    if (!(mask >> lane & 1)) {
        zt_emu_die("a lane is not in its own mask");
    }
    em_meeting *m = &em.meeting[warp][__builtin_ctz(need)];
    if (m->arrived && (m->mask != mask || m->fn != fn)) {
        zt_emu_die("lanes of a warp meet in different calls");
    }
    if (!m->arrived) {
        memset(m->args, 0, sizeof m->args);
    }
    m->mask = mask;
    m->fn = fn;
    m->args[lane] = arg;
    m->arrived |= 1u << lane;
    if (m->arrived != need) {
        em_wait(EM_AT_WARP);
        return;
    }
    m->arrived = 0;
    fn(m->args, need);
    for (unsigned i = 0; i < 32; i++) {
        if (need >> i & 1) {
            em.thread[first + i].state = EM_READY;
        }
    }
}

static void em_run_thread(unsigned i)
{
    em_thread *t = &em.thread[i];
    em.current = i;
    zt_emu_thread = t->index;
    zt_emu_switch(&em.scheduler, t->place);
    em.n_alive -= t->state == EM_DONE;
}

/* Let the lanes of a warp run until none of them can. */
static void em_run_warp(unsigned warp)
{
    unsigned first = warp * 32, n = em.n - first < 32 ? em.n - first : 32;
    for (bool again = true; again;) {
        again = false;
        for (unsigned k = 0; k < n; k++) {
            unsigned i = first + (em.reverse ? n - 1 - k : k);
            if (em.thread[i].state == EM_READY) {
                em_run_thread(i);
                again = true;
            }
        }
    }
}

static void em_run_block(void)
{
    unsigned warps = (em.n + 31) / 32;
    em.n_alive = em.n;
    em.n_waiting = em.yes = 0;
    memset(em.shared, 0xff, em.n_shared); // what was not written is NaN
    for (unsigned i = 0; i < em.n; i++) {
        em.thread[i].state = EM_READY;
    }
    for (;;) {
        for (unsigned k = 0; k < warps; k++) {
            em_run_warp(em.reverse ? warps - 1 - k : k);
        }
        if (em.n_alive == 0) {
            return;
        }
        if (em_wake_later()) {
            continue;
        }
        if (em.n_waiting != em.n_alive) {
            zt_emu_die("threads wait for others that never come");
        }
        em.last_yes = em.yes;
        em.n_waiting = em.yes = 0;
        for (unsigned i = 0; i < em.n; i++) {
            if (em.thread[i].state == EM_AT_BARRIER) {
                em.thread[i].state = EM_READY;
            }
        }
    }
}

/* ---- launches ------------------------------------------------------------------------------ */

#define EM_SHARED_DEFAULT (48u << 10)
#define EM_SHARED_MOST    (227u << 10)
#define EM_KERNELS        512u

static struct {
    const void *kernel;
    size_t bytes;
} em_allowed[EM_KERNELS];
static unsigned em_n_allowed;

cudaError_t zt_emu_allow_shared(const void *kernel, size_t bytes)
{
    unsigned i = 0;
    if (bytes > zt_emu_most_shared()) {
        return zt_emu_fail(cudaErrorInvalidValue);
    }
    while (i < em_n_allowed && em_allowed[i].kernel != kernel) {
        i++;
    }
    if (i == EM_KERNELS) {
        zt_emu_die("too many kernels");
    }
    em_n_allowed += i == em_n_allowed;
    em_allowed[i].kernel = kernel;
    em_allowed[i].bytes = bytes;
    return cudaSuccess;
}

static size_t em_shared_of(const void *kernel)
{
    for (unsigned i = 0; i < em_n_allowed; i++) {
        if (em_allowed[i].kernel == kernel) {
            return em_allowed[i].bytes > EM_SHARED_DEFAULT ? em_allowed[i].bytes
                                                           : EM_SHARED_DEFAULT;
        }
    }
    return EM_SHARED_DEFAULT;
}

static void em_init(void)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&em_lock, &attr);
    size_t n = (size_t)EM_THREADS * EM_STACK;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    em.stacks = (char *)mmap(NULL, n, PROT_READ | PROT_WRITE, flags, -1, 0);
    em.shared = (char *)mmap(NULL, EM_SHARED_MOST, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (em.stacks == MAP_FAILED || em.shared == MAP_FAILED) {
        zt_emu_die("no memory for threads");
    }
    for (unsigned i = 0; i < EM_THREADS; i++) {
        em.thread[i].place = em_begin(em.stacks + (size_t)i * EM_STACK, em_entry);
    }
    const char *order = getenv("ZT_EMULATE_ORDER");
    em.reverse = order && strcmp(order, "reverse") == 0;
}

static void em_number_threads(dim3 block)
{
    for (unsigned i = 0; i < em.n; i++) {
        em.thread[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    }
}

void zt_emu_launch(const void *kernel, dim3 grid, dim3 block, size_t shared, void (*fn)(void *),
                   void *arg)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (threads == 0 || threads > EM_THREADS || blocks == 0 || grid.x > 0x7fffffffu ||
        grid.y > 65535 || grid.z > 65535 || block.z > 64 || shared > em_shared_of(kernel)) {
        zt_emu_fail(cudaErrorInvalidConfiguration);
        return;
    }
    zt_emu_enter();
    em.n = (unsigned)threads;
    em.fn = fn;
    em.arg = arg;
    zt_emu_block_size = block;
    zt_emu_grid_size = grid;
    zt_emu_shared = em.shared;
    em.n_shared = shared;
    em_number_threads(block);
    for (uint64_t k = 0; k < blocks; k++) {
        uint64_t b = em.reverse ? blocks - 1 - k : k;
        zt_emu_block = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                        (unsigned)(b / grid.x / grid.y)};
        em_run_block();
    }
    zt_emu_leave();
}

/* ---- device memory ------------------------------------------------------------------------- */

#define EM_ARENA  ((size_t)64 << 30) /* addresses, not memory */
#define EM_ALIGN  256u
#define EM_FENCE  256u /* bytes behind each block that nobody may write */
#define EM_FILLED 0xffu
#define EM_PAGE   ((size_t)2 << 20) /* large pages: protection changes twice per kernel */

/* A block that is in use; they are kept in order of address. */
typedef struct em_block {
    struct em_block *next;
    size_t at, n; /* in the arena; bytes asked for */
} em_block;

static struct {
    char *base;
    size_t top, used; /* end of the last block; bytes in use */
    em_block *first;
    unsigned depth; /* of enter() */
} em_arena;

static size_t em_room(size_t n)
{
    return (n + EM_ALIGN - 1) / EM_ALIGN * EM_ALIGN + EM_FENCE;
}

static void em_protect(int how)
{
    size_t n = (em_arena.top + EM_PAGE - 1) / EM_PAGE * EM_PAGE;
    if (n > 0 && mprotect(em_arena.base, n, how) != 0) {
        zt_emu_die("cannot change the protection of device memory");
    }
}

void zt_emu_enter(void)
{
    pthread_once(&em_once, em_init);
    pthread_mutex_lock(&em_lock);
    if (em_arena.depth++ == 0) {
        em_protect(PROT_READ | PROT_WRITE);
    }
}

void zt_emu_leave(void)
{
    if (--em_arena.depth == 0) {
        em_protect(PROT_NONE);
    }
    pthread_mutex_unlock(&em_lock);
}

/* Fresh memory is NaN, so that reading it shows; of large blocks the first part. */
static void em_fill(const em_block *b)
{
    char *p = em_arena.base + b->at;
    memset(p, EM_FILLED, b->n < (1u << 20) ? b->n : 1u << 20);
    memset(p + b->n, EM_FILLED, em_room(b->n) - b->n);
}

static bool em_place_block(em_block *b)
{
    em_block **link = &em_arena.first;
    size_t at = 0;
    while (*link && (*link)->at - at < em_room(b->n)) {
        at = (*link)->at + em_room((*link)->n);
        link = &(*link)->next;
    }
    if (at + em_room(b->n) > EM_ARENA || em_arena.used + b->n > zt_emu_capacity()) {
        return false;
    }
    b->at = at;
    b->next = *link;
    *link = b;
    em_arena.used += b->n;
    return true;
}

cudaError_t zt_emu_malloc(void **p, size_t n)
{
    *p = NULL;
    if (n == 0) {
        return cudaSuccess;
    }
    zt_emu_enter();
    if (!em_arena.base) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        em_arena.base = (char *)mmap(NULL, EM_ARENA + EM_PAGE, PROT_NONE, flags, -1, 0);
        if (em_arena.base == MAP_FAILED) {
            zt_emu_die("no addresses for device memory");
        }
        em_arena.base += EM_PAGE - (uintptr_t)em_arena.base % EM_PAGE;
        (void)madvise(em_arena.base, EM_ARENA, MADV_HUGEPAGE); // advice: failing is fine
    }
    em_block *b = (em_block *)calloc(1, sizeof *b);
    b->n = n;
    bool ok = n <= EM_ARENA && em_place_block(b);
    if (ok) {
        size_t end = b->at + em_room(n);
        em_arena.top = end > em_arena.top ? end : em_arena.top;
        em_protect(PROT_READ | PROT_WRITE);
        em_fill(b);
        *p = em_arena.base + b->at;
    } else {
        free(b);
    }
    zt_emu_leave();
    return ok ? cudaSuccess : zt_emu_fail(cudaErrorMemoryAllocation);
}

static bool em_is_device(const void *p)
{
    return em_arena.base && (const char *)p >= em_arena.base &&
           (const char *)p < em_arena.base + EM_ARENA;
}

cudaError_t cudaFree(void *p)
{
    if (!p) {
        return cudaSuccess;
    }
    zt_emu_enter();
    em_block **link = &em_arena.first;
    size_t at = (size_t)((char *)p - em_arena.base);
    while (*link && (*link)->at != at) {
        link = &(*link)->next;
    }
    em_block *b = *link;
    if (!em_is_device(p) || !b) {
        zt_emu_die("memory is freed that was not allocated");
    }
    for (size_t i = b->n; i < em_room(b->n); i++) {
        if ((unsigned char)em_arena.base[b->at + i] != EM_FILLED) {
            zt_emu_die("somebody wrote behind the end of a block of device memory");
        }
    }
    *link = b->next;
    em_arena.used -= b->n;
    free(b);
    zt_emu_leave();
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t)
{
    return cudaFree(p);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = zt_emu_capacity();
    *free_bytes = *total - em_arena.used;
    return cudaSuccess;
}

/* ---- pinned host memory -------------------------------------------------------------------- */

typedef struct em_pinned {
    struct em_pinned *next;
    char *p;
    size_t n;
} em_pinned;

/* A copy that has not arrived yet. */
typedef struct em_late {
    struct em_late *next;
    char *to;
    size_t n;
    char bytes[];
} em_late;

static em_pinned *em_pins;
static em_late *em_lates, **em_last_late = &em_lates;

static bool em_is_pinned(const void *p)
{
    for (const em_pinned *x = em_pins; x; x = x->next) {
        if ((const char *)p >= x->p && (const char *)p < x->p + x->n) {
            return true;
        }
    }
    return false;
}

static void em_pin(void *p, size_t n)
{
    em_pinned *x = (em_pinned *)calloc(1, sizeof *x);
    x->p = (char *)p;
    x->n = n;
    zt_emu_enter();
    x->next = em_pins;
    em_pins = x;
    zt_emu_leave();
}

static bool em_unpin(void *p)
{
    zt_emu_enter();
    em_pinned **link = &em_pins;
    while (*link && (*link)->p != p) {
        link = &(*link)->next;
    }
    em_pinned *x = *link;
    if (x) {
        *link = x->next;
        free(x);
    }
    zt_emu_leave();
    return x != NULL;
}

static void em_arrive(void)
{
    zt_emu_enter();
    while (em_lates) {
        em_late *l = em_lates;
        em_lates = l->next;
        memcpy(l->to, l->bytes, l->n);
        free(l);
    }
    em_last_late = &em_lates;
    zt_emu_leave();
}

cudaError_t zt_emu_malloc_host(void **p, size_t n)
{
    *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096 + 4096);
    if (!*p) {
        return zt_emu_fail(cudaErrorMemoryAllocation);
    }
    em_pin(*p, n);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    em_arrive();
    if (p && !em_unpin(p)) {
        return zt_emu_fail(cudaErrorInvalidValue);
    }
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    em_pin(p, n);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    em_arrive();
    return em_unpin(p) ? cudaSuccess : zt_emu_fail(cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    memset(a, 0, sizeof *a);
    a->type = em_is_device(p)   ? cudaMemoryTypeDevice
              : em_is_pinned(p) ? cudaMemoryTypeHost
                                : cudaMemoryTypeUnregistered;
    a->devicePointer = a->type == cudaMemoryTypeDevice ? (void *)(uintptr_t)p : NULL;
    a->hostPointer = a->type == cudaMemoryTypeHost ? (void *)(uintptr_t)p : NULL;
    return cudaSuccess;
}

/* ---- copies -------------------------------------------------------------------------------- */

static void em_copy_later(void *to, const void *from, size_t n)
{
    em_late *l = (em_late *)malloc(sizeof *l + n);
    if (!l) {
        zt_emu_die("out of memory");
    }
    l->next = NULL;
    l->to = (char *)to;
    l->n = n;
    memcpy(l->bytes, from, n);
    *em_last_late = l;
    em_last_late = &l->next;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t)
{
    bool from_device = em_is_device(from), to_device = em_is_device(to);
    if (n == 0) {
        return cudaSuccess;
    }
    if (kind != cudaMemcpyDefault &&
        ((kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) != to_device ||
         (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) != from_device)) {
        return zt_emu_fail(cudaErrorInvalidValue);
    }
    zt_emu_enter();
    if (from_device && !to_device && em_is_pinned(to)) {
        em_copy_later(to, from, n);
    } else {
        memmove(to, from, n);
    }
    zt_emu_leave();
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    cudaError_t e = cudaMemcpyAsync(to, from, n, kind, NULL);
    em_arrive();
    return e;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < height && e == cudaSuccess; i++) {
        e = cudaMemcpyAsync((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width,
                            kind, s);
    }
    return e;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t)
{
    if (n > 0 && !em_is_device(p)) {
        return zt_emu_fail(cudaErrorInvalidValue);
    }
    zt_emu_enter();
    memset(p, value, n);
    zt_emu_leave();
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t n)
{
    return cudaMemsetAsync(p, value, n, NULL);
}

/* ---- streams and events: everything has happened when a call returns ----------------------- */

struct zt_emu_stream {
    int unused;
};

struct zt_emu_event {
    int unused;
};

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = (cudaStream_t)calloc(1, sizeof **s);
    return *s ? cudaSuccess : zt_emu_fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    em_arrive();
    free(s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    em_arrive();
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t)
{
    em_arrive();
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    em_arrive();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t e, unsigned)
{
    return e ? cudaSuccess : zt_emu_fail(cudaErrorInvalidValue);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = (cudaEvent_t)calloc(1, sizeof **e);
    return *e ? cudaSuccess : zt_emu_fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t)
{
    return e ? cudaSuccess : zt_emu_fail(cudaErrorInvalidValue);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    em_arrive();
    return e ? cudaSuccess : zt_emu_fail(cudaErrorInvalidValue);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return cudaEventSynchronize(e);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
    *ms = 1.0f;
    return cudaSuccess;
}
