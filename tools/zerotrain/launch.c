/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c: builds an mpirun command from hosts and slots, as DeepSpeed's launcher does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cuda/load.h"
#include "tools/zerotrain/zerotrain.h"

/* True for options of the launcher itself; all others are passed to the ranks. */
static bool ln_own(const char *arg, bool *takes_value)
{
    static const char *const own[] = {"hostfile", "include", "exclude", "num_nodes", "num_gpus"};
    size_t n = strcspn(arg, "=");

    if (strncmp(arg, "--", 2) != 0)
        return false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        size_t k = 0;
        while (own[i][k] && (own[i][k] == arg[2 + k] || (own[i][k] == '_' && arg[2 + k] == '-')))
            k++;
        if (!own[i][k] && 2 + k == n) {
            *takes_value = !arg[n];
            return true;
        }
    }
    return false;
}

/* Slots of this machine: its GPUs if the run uses them, else its CPUs. */
static long ln_here(const told *o)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    int gpus = 0;
    ckpt_err why = {0};

    if (strcmp(o->run.device, "cpu") != 0 && zt_cuda_count(&gpus, &why) == CKPT_OK && gpus > 0)
        return gpus;
    return n > 0 ? n : 1;
}

/*
 * Read the hosts.  Without a hostfile: this machine, with the requested slots, or all of its own.
 */
static int ln_hosts(ckpt_hosts *out, ckpt_arena *arena, const told *o, ckpt_err *err)
{
    const ckpt_host_filter filter = {o->include, o->exclude, o->num_nodes, o->num_slots};
    ckpt_hosts all = {0};
    char *line;
    int rc;

    if (o->hostfile) {
        rc = ckpt_hosts_read(&all, arena, o->hostfile, err);
    } else {
        line = ckpt_arena_printf(arena, "localhost slots=%lld\n",
                                 (long long)(o->num_slots > 0 ? o->num_slots : ln_here(o)));
        rc = line ? ckpt_hosts_parse(&all, arena, line, strlen(line), "local machine", err)
                  : ckpt_fail_memory(err);
    }
    return rc == CKPT_OK ? ckpt_hosts_filter(out, arena, &all, &filter, err) : rc;
}

/*
 * List the slots of the ranks in order, unless they are the first ones of each host: mpirun gets
 * only their number, so a rank with a GPU needs the list to find it.  NULL: out of memory; "": the
 * default.
 */
static const char *ln_slots(ckpt_arena *arena, const ckpt_hosts *hosts)
{
    ckpt_bytes list = {0};
    bool plain = true, ok = true;
    const char *text;

    for (size_t i = 0; i < hosts->n; i++) {
        for (uint32_t k = 0; ok && k < hosts->at[i].n_slots; k++) {
            plain = plain && hosts->at[i].slot[k] == k;
            ok = ckpt_bytes_printf(&list, "%s%u", list.n ? "," : "--slots=", hosts->at[i].slot[k]);
        }
    }
    text = !ok ? NULL : plain ? "" : ckpt_arena_string(arena, (const char *)list.at, list.n);
    ckpt_vec_free(&list);
    return text;
}

/*
 * Make the command mpirun [hosts] program [options].  Ranks are not bound to one CPU each, because
 * they have threads.  --local_rank shows them that they were launched, even if a file of --args
 * selects hosts.
 */
static char **ln_command(ckpt_arena *arena, const char *const *hosts, const char *slots, int argc,
                         char **argv)
{
    static const char *const more[] = {"--bind-to", "none"};
    size_t n_hosts = 0, n = 0;
    char **cmd;

    while (hosts[n_hosts])
        n_hosts++;
    cmd = ckpt_arena_array(arena, n_hosts + (size_t)argc + 8, sizeof *cmd);
    if (!cmd)
        return NULL;
    cmd[n++] = ckpt_arena_string(arena, "mpirun", 6);
    for (size_t i = 0; i < n_hosts; i++)
        cmd[n++] = ckpt_arena_string(arena, hosts[i], strlen(hosts[i]));
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        cmd[n++] = ckpt_arena_string(arena, more[i], strlen(more[i]));
    cmd[n++] = argv[0];
    for (int i = 1; i < argc; i++) {
        bool value = false;
        if (ln_own(argv[i], &value))
            i += value;
        else
            cmd[n++] = argv[i];
    }
    if (*slots)
        cmd[n++] = ckpt_arena_string(arena, slots, strlen(slots));
    cmd[n] = ckpt_arena_string(arena, "--local_rank=0", 14);
    return cmd;
}

/*
 * Set environment variables for mpirun; a variable that is already set stays.
 *
 * Open MPI refuses to run as root, the user in containers; a user who starts this program as root
 * has accepted that already.  PMIx 4 keeps the ranks' data under a lock in shared memory (ds21),
 * and a rank that ends at the wrong moment makes mpirun wait for ever (openpmix issue 1233); "hash"
 * keeps the data in mpirun.
 */
static void ln_environment(void)
{
    (void)setenv("PMIX_MCA_gds", "hash", 0);
    if (geteuid() == 0) {
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
}

int launch(const told *t, int argc, char **argv, ckpt_err *err)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    const char *const *hosts = NULL;
    const char *slots = NULL;
    ckpt_hosts chosen = {0};
    char **cmd = NULL;
    int rc = arena ? ln_hosts(&chosen, arena, t, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        hosts = ckpt_hosts_mpirun(arena, &chosen);
        slots = ln_slots(arena, &chosen);
        cmd = hosts && slots ? ln_command(arena, hosts, slots, argc, argv) : NULL;
        if (!cmd)
            rc = ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK) {
        ln_environment();
        execvp("mpirun", cmd);
        rc = ckpt_fail_sys(err, errno == ENOENT ? CKPT_EMISSING : CKPT_EIO, errno,
                           "cannot start mpirun (Debian: openmpi-bin)");
    }
    ckpt_arena_free(arena);
    return rc;
}
