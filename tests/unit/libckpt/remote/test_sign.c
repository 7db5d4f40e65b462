/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sign.c: has the transport sign Amazon's published example of a GET request, and compares
 * the signature.
 *
 * A socket of this process takes the part of the server.  The date is one of the signed headers, so
 * the request carries the date of the example.
 * Source   Amazon S3 API reference, "Signature calculations for the authorization header:
 *          transferring payload in a single chunk", example: GET object
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libckpt/remote/wire.h"
#include "tests/unit/unit.h"

static char request[8192];

/* Read one request, up to its empty line, and answer it. */
static void *serve(void *ctx)
{
    static const char answer[] = "HTTP/1.1 206 Partial\r\nContent-Length: 2\r\n\r\nok";
    int fd = accept(*(int *)ctx, NULL, NULL);
    size_t n = 0;

    while (fd >= 0 && n + 1 < sizeof request && !strstr(request, "\r\n\r\n")) {
        ssize_t got = recv(fd, request + n, sizeof request - 1 - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
        request[n] = 0;
    }
    if (fd >= 0) {
        (void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        (void)close(fd);
    }
    return NULL;
}

static int got_header(void *ctx, long status, const char *name, const char *value)
{
    (void)ctx;
    (void)status;
    (void)name;
    (void)value;
    return 0;
}

static int got_body(void *ctx, const void *bytes, size_t n)
{
    (void)ctx;
    (void)bytes;
    (void)n;
    return 0;
}

/* The transport's library beside the library of this build; NULL: it was not built. */
static const ckpt_wire_plugin *transport(void)
{
    char path[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);

    if (n <= 0)
        return NULL;
    path[n] = 0;
    char *unit = strstr(path, "/unit/libckpt/");
    if (!unit)
        return NULL;
    (void)snprintf(unit, sizeof path - (size_t)(unit - path), "/lib/%s", CKPT_WIRE_PLUGIN);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, CKPT_WIRE_TABLE) : NULL;
}

/* A socket that listens on a port of its own. */
static int listening(unsigned *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void test_published_example(void **state)
{
    static const char *const header[] = {
        "Host: examplebucket.s3.amazonaws.com", "Range: bytes=0-9",
        ("x-amz-content-sha256: "
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        "x-amz-date: 20130524T000000Z"};
    const ckpt_wire_plugin *p = transport();
    char url[64];
    unsigned port;
    pthread_t server;
    ckpt_wire_outcome out = {0};
    ckpt_wire_request r = {.url = url,
                           .header = header,
                           .n_header = sizeof header / sizeof *header,
                           .sign = "aws:amz:us-east-1:s3",
                           .user = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                           .agent = "test",
                           .connect_s = 20,
                           .stall_s = 20,
                           .least_rate = 1,
                           .got_header = got_header,
                           .got_body = got_body};

    (void)state;
    if (!p)
        skip();
    assert_int_equal(p->version, CKPT_WIRE_VERSION);
    assert_int_equal(setenv("no_proxy", "*", 1), 0);
    assert_int_equal(p->begin(), 0);
    int fd = listening(&port);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/test.txt", port);
    assert_int_equal(pthread_create(&server, NULL, serve, &fd), 0);
    ckpt_wire *wire = p->open();
    assert_non_null(wire);
    p->get(wire, &r, &out);
    p->close(wire);
    assert_int_equal(pthread_join(server, NULL), 0);
    (void)close(fd);
    assert_int_equal(out.end, CKPT_WIRE_DONE);
    if (!strstr(request, "Signature="
                         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"))
        fail_msg("another signature:\n%s", request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_example)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
