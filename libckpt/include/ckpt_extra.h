/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_extra.h: declares the functions of the library that are not stable yet.
 *
 * Everything in this header, in ckpt_shape.h and in ckpt_team.h may change or vanish in any
 * release; a program that uses it is built against one release. The stable part of the library is
 * ckpt.h, whose conventions also hold here. This header includes all others.
 */
#ifndef CKPT_EXTRA_H
#define CKPT_EXTRA_H

#include "ckpt.h"
#include "ckpt_shape.h"
#include "ckpt_team.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_value ckpt_value;
typedef struct ckpt_view ckpt_view;

/* ---- programs with fewer privileges ---- */

/* The flags of ckpt_prepare. */
enum { CKPT_PREPARE_READ = 1, CKPT_PREPARE_WRITE = 2, CKPT_PREPARE_FETCH = 4 };

/*
 * Acquire resources early, for programs that drop privileges (Landlock, seccomp) before they open a
 * checkpoint, because the sandbox would refuse these steps later. Call it before other threads use
 * the library. CKPT_PREPARE_READ opens the unnamed temporary file, in TMPDIR or else /tmp, for
 * decoded records that are too large for memory; it stays open until the process ends.
 * CKPT_PREPARE_WRITE loads the configuration of OpenSSL, which computes the digests of resumable
 * outputs. CKPT_PREPARE_FETCH loads the plugin that reads remote addresses.
 *
 * flags     CKPT_PREPARE_* values, combined by |
 * Errors    CKPT_EIO: the temporary file cannot be created; checkpoints that do not need it can
 *           still be read. CKPT_ELIMIT; CKPT_EUNSUPPORTED, CKPT_EUSAGE: addresses cannot be read
 */
CKPT_API int ckpt_prepare(unsigned flags, ckpt_err *err);

/*
 * Check that an output may have this path, which need not exist. Every function that writes makes
 * the same check.
 *
 * Errors   CKPT_EUSAGE: an address of any scheme; a device, pipe or socket; a symbolic link, unless
 *          it leads to a folder
 */
CKPT_API int ckpt_output_check(const char *path, ckpt_err *err);

/* ---- remote addresses ---- */

/*
 * Remote addresses (ckpt-remote(7)): ckpt_path_is_remote is true for a path on another machine;
 * ckpt_open and every function that opens a checkpoint accept such a path too. A thread that waits
 * for another machine calls `stop` several times a second and fails with CKPT_ECANCELED soon after
 * `stop` returns true; NULL: waits cannot be cancelled.
 */
CKPT_API bool ckpt_path_is_remote(const char *path);
typedef bool ckpt_remote_stop_fn(void *ctx);
CKPT_API void ckpt_remote_set_stop(ckpt_remote_stop_fn *stop, void *ctx);
/*
 * True while the library fetches the headers of remote files; n_open of n_all have arrived. A
 * `stop` function can call it to show progress.
 */
CKPT_API bool ckpt_remote_progress(uint64_t *n_open, uint64_t *n_all);

/* ---- dtypes and formats ---- */

/*
 * Elements of a block of a dtype (1: the type has no blocks) and, unless bytes is NULL, the size of
 * the block.
 */
CKPT_API unsigned ckpt_dtype_block(ckpt_dtype d, unsigned *bytes);

/* True if ckpt can convert elements of dtype `from` to dtype `to`; equal dtypes: always. */
CKPT_API bool ckpt_dtype_converts(ckpt_dtype to, ckpt_dtype from);

/* The format to write to a file of this name, by its suffix; NULL: no format has this suffix. */
CKPT_API const char *ckpt_format_from_path(const char *path);

/* The flags of one format; 0 for an unknown name. */
CKPT_API unsigned ckpt_format_caps(const char *name);

/* ---- maps ---- */

/*
 * Open a file of any known file format whose bytes the caller provides (ckpt_types.h). Every
 * function that takes a map accepts the result. Options for folders have no effect.
 *
 * name    of the file, for messages; a single array takes this name
 * Errors  CKPT_EUSAGE; those of ckpt_open
 */
CKPT_API int ckpt_open_input(ckpt_map **out, const char *name, const ckpt_input *input,
                             const ckpt_open_opts *opts, ckpt_err *err);

/* CKPT_USED_*: the options that had an effect on the map. */
CKPT_API unsigned ckpt_map_used_options(const ckpt_map *map);

/*
 * Target maps: the folder that receives the files: the target's path, or the folder of its single
 * file; NULL for other maps.
 */
CKPT_API const char *ckpt_map_output_dir(const ckpt_map *map);

/*
 * Target maps: the name of the folder below the target's path that holds all files and appears
 * complete or not at all, and the name of the small file beside it that names this folder
 * ("latest"). Each is NULL when there is none.
 */
CKPT_API const char *ckpt_map_output_folder(const ckpt_map *map);
CKPT_API const char *ckpt_map_output_pointer(const ckpt_map *map);

/*
 * Extent i of a tensor: a box of its elements and the place of their bytes. An extent that the
 * library does not store is computed into *room, so the result lives as long as the shorter-lived
 * of map and room.
 *
 * i        less than t->n_extents; a tied tensor has no extents of its own (t->owner)
 */
CKPT_API const ckpt_extent *ckpt_tensor_extent(const ckpt_tensor *t, uint32_t i, ckpt_box *room);

/*
 * The location of the bytes of an extent (ckpt_tensor_extent): the path of the file, the name of
 * the record (or NULL), and the offset in the file (UINT64_MAX: compressed).
 */
CKPT_API bool ckpt_map_locate(const ckpt_map *map, const ckpt_extent *e, const char **path,
                              const char **record, uint64_t *at);

/* Check that existing bytes cover each element of each tensor exactly once. */
CKPT_API int ckpt_map_check(const ckpt_map *map, ckpt_err *err);

/*
 * Add the training state of a run before its first step to a map that has only weights (a model
 * folder, a torch or safetensors file), so that "zero" and "universal" targets can be laid out from
 * it: AdamW at step 0, moments of zero. Formats that hold only weights (CKPT_TAKES_WEIGHTS) need no
 * state and get none. A map with training state keeps it; only the order of the parameters in its
 * groups changes, to target->order_text.
 *
 * The order of the parameters is target->order_text. Without it, ckpt uses the known order of the
 * model type in config.json, or the file's own order for torch files. Floating tensors that
 * order_text does not list become frozen parameters.
 *
 * Errors   CKPT_EUSAGE: a bad order, no known order, no stage, world size or dtype; CKPT_EMISSING:
 *          nothing to train; CKPT_EUNSUPPORTED: moments without step counts
 */
CKPT_API int ckpt_map_warm_start(ckpt_map *map, const ckpt_target *target, ckpt_err *err);

/* ---- the tree of values ---- */

typedef enum ckpt_tree_format { CKPT_TREE_TEXT, CKPT_TREE_JSON } ckpt_tree_format;

/*
 * Print the tree of values through a callback, in linear size: it prints a shared node once, and
 * refers to it where it occurs again. max_depth 0 means 100; max_items (per container) 0 means all.
 * path ("optimizer_state_dict.loss_scaler") selects a sub-tree, NULL the root.
 *
 * fn       receives n bytes of the text, not terminated; a negative code of ckpt_types.h ends the
 *          printing and is returned, any other non-zero value ends it with CKPT_ECANCELED
 * Errors   CKPT_EMISSING: no such path; CKPT_EUSAGE, CKPT_ELIMIT; those of fn
 */
typedef int (*ckpt_write_fn)(void *ctx, const char *text, size_t n);
typedef struct ckpt_tree_opts {
    size_t size; /* sizeof this struct, or 0: see ckpt.h */
    ckpt_tree_format format;
    const char *path;
    unsigned max_depth;
    uint64_t max_items;
} ckpt_tree_opts;
CKPT_API int ckpt_tree_print(const ckpt_map *map, const ckpt_tree_opts *opts, ckpt_write_fn fn,
                             void *ctx, ckpt_err *err);

/* The kind of a value for a program; it does not distinguish Python's types of one kind. */
typedef enum ckpt_kind {
    CKPT_KIND_NONE, /* None, or a missing value */
    CKPT_KIND_BOOL,
    CKPT_KIND_INT, /* 64 bits */
    CKPT_KIND_FLOAT,
    CKPT_KIND_TEXT, /* UTF-8, terminated */
    CKPT_KIND_BYTES,
    CKPT_KIND_LIST,   /* lists, tuples, sets */
    CKPT_KIND_DICT,   /* in the order of insertion */
    CKPT_KIND_TENSOR, /* the map's tensors hold its elements */
    CKPT_KIND_OTHER   /* longer integers, classes, dtypes, objects: ckpt_tree_print shows them */
} ckpt_kind;

/*
 * The root of the tree of values, or NULL. Nodes live as long as the map. They form a graph that
 * may share nodes and contain cycles, so a walk needs its own limit.
 */
CKPT_API const ckpt_value *ckpt_map_values(const ckpt_map *map);
CKPT_API ckpt_kind ckpt_value_type(const ckpt_value *v);

/*
 * The value as a number; false, and 0, when it is not a number. Booleans and enumerations count as
 * integers; integers count as floats, rounded beyond 2^53.
 */
CKPT_API bool ckpt_value_to_int(const ckpt_value *v, int64_t *out);
CKPT_API bool ckpt_value_to_float(const ckpt_value *v, double *out);

/*
 * The n bytes of TEXT and BYTES; a terminator follows, which n does not count. False for other
 * kinds.
 */
CKPT_API bool ckpt_value_to_text(const ckpt_value *v, const char **text, size_t *n);

/*
 * Items of a list or dict: their number (0 when the value is not a container), the i-th value, its
 * key in a dict, and the value of a text key; NULL: there is none.
 */
CKPT_API size_t ckpt_value_count(const ckpt_value *v);
CKPT_API const ckpt_value *ckpt_value_at(const ckpt_value *v, size_t i);
CKPT_API const ckpt_value *ckpt_value_key_at(const ckpt_value *v, size_t i);
CKPT_API const ckpt_value *ckpt_value_find(const ckpt_value *v, const char *key);

/* A difference between values of two checkpoints beside their tensors. */
typedef struct ckpt_value_difference {
    const char *path;  /* "optim_states...param_groups[0].lr", "config.json: rope_theta" */
    const char *a, *b; /* the values as short texts; NULL: this side has none */
    /* a program may compute something else from B; false: names, versions, notes, files of use */
    bool counts;
} ckpt_value_difference;
typedef int (*ckpt_value_difference_fn)(void *ctx, const ckpt_value_difference *d);

/*
 * Compare the values of two checkpoints of one format beside their tensors: training state, the
 * keys of GGUF, configuration and tokenizer of model folders, metadata of safetensors.
 *
 * a        the expected one
 * fn       called for each difference; a non-zero return ends the calls
 * Errors   CKPT_EDIFFERS: a difference counts; CKPT_EIO, CKPT_ELIMIT
 */
CKPT_API int ckpt_diff_values(const ckpt_map *a, const ckpt_map *b, ckpt_value_difference_fn fn,
                              void *ctx, ckpt_err *err);

/* ---- reading values ---- */

/*
 * Do not check CRCs of records stored uncompressed, in all later reads. Use it to read a few
 * elements of a large record, because a check reads the complete record.
 */
CKPT_API void ckpt_reader_skip_crc(ckpt_reader *r);

/*
 * From this call on, compare each tensor that is read with its other copies in the checkpoint (fp32
 * masters with 16-bit weights, replicas of several ranks), as ckpt_convert does. A read of elements
 * that differ from a copy fails with CKPT_EMISMATCH. ckpt_open_opts.ignore_copies leaves 16-bit
 * copies out.
 */
CKPT_API void ckpt_reader_compare(ckpt_reader *r);

/*
 * Read elements start[k]..start[k]+count[k]-1 of each axis k into the caller's layout, so that a
 * loader can read its slice of a parameter directly into place.
 *
 * start    one per axis of t; count too
 * dtype    of the elements in buf; NONE: the tensor's own
 * stride   bytes from one element to the next along each axis, in any order of axes; gaps are not
 *          written. Ignored for an axis of one element. Elements must not overlap. NULL: row-major
 *          and dense
 * Errors   CKPT_EUSAGE: outside the tensor; a stride that is negative or smaller than an element;
 *          more bytes than a buffer can hold; those of ckpt_reader_read_slice
 */
CKPT_API int ckpt_reader_read_box(ckpt_reader *r, const ckpt_tensor *t, const uint64_t *start,
                                  const uint64_t *count, ckpt_dtype dtype, void *buf,
                                  const int64_t *stride, ckpt_err *err);

/* ---- files without writing them ---- */

typedef struct ckpt_view_opts {
    size_t size;              /* sizeof this struct, or 0: see ckpt.h */
    const ckpt_run_opts *run; /* only memory, jobs, allow_overflow and strict count; or NULL */
    /*
     * read a complete record and compare its CRC before returning its first byte; false: compare it
     * as soon as the reads have covered the record
     */
    bool check_first;
} ckpt_view_opts;

/*
 * A view of the files of a laid-out target, readable at any offset without writing them. Opening
 * costs as much as a plan; memory is bounded for a model of any size. Both maps must outlive the
 * view, because the view stores checksums in the target map.
 *
 * Torch archives have checksums of 0, as torch writes them after
 * torch.serialization.set_crc32_options(False); all other bytes equal those that ckpt_plan_run
 * writes. A target with deflated files has no view.
 */
CKPT_API int ckpt_view_new(ckpt_view **out, const ckpt_map *from, ckpt_map *to,
                           const ckpt_view_opts *opts, ckpt_err *err);
CKPT_API void ckpt_view_free(ckpt_view *view);

/*
 * The number of files, with the pointer to the newest tag; the path of file i, relative to the
 * target's path or to the folder of its single file; its size in bytes. NULL: there is no such
 * file.
 */
CKPT_API size_t ckpt_view_file_count(const ckpt_view *view);
CKPT_API const char *ckpt_view_file_path(const ckpt_view *view, size_t i);
CKPT_API uint64_t ckpt_view_file_size(const ckpt_view *view, size_t i);

/*
 * Read n bytes of file i from offset `at`, in any order, from any number of threads.
 *
 * Errors   CKPT_EUSAGE: not all inside the file; CKPT_EFORMAT: a record of the source fails its
 *          CRC; CKPT_EMISMATCH: a copy differs; CKPT_EDOUBT: values that a run refuses; CKPT_EIO,
 *          CKPT_ELIMIT. The message names file and record. Earlier reads of a bad record may have
 *          returned damaged bytes
 */
CKPT_API int ckpt_view_read(ckpt_view *view, size_t i, void *buf, uint64_t n, uint64_t at,
                            ckpt_err *err);

/*
 * Read ahead for a sequential reader: prepare these bytes in the calling thread, as far as a worker
 * and memory are free. Only for a file that was read before.
 *
 * Errors   those of the read; the read itself meets a damaged record again and reports it in full
 */
CKPT_API int ckpt_view_prefetch(ckpt_view *view, size_t i, uint64_t n, uint64_t at, ckpt_err *err);

/*
 * Stream file i from its first byte to its last, with all checksums: the bytes that ckpt_plan_run
 * would write. Call it before ckpt_view_read of that file. When it ends, it has read every record
 * that the file needs completely, and compared its CRC.
 *
 * Errors   those of ckpt_view_read, after which the bytes passed to write may be damaged; those of
 *          write
 */
CKPT_API int ckpt_view_stream(ckpt_view *view, size_t i, ckpt_view_write_fn write, void *ctx,
                              ckpt_err *err);
CKPT_API void ckpt_view_get_counts(ckpt_view *view, ckpt_view_counts *out);

/*
 * Open the files of a view as a checkpoint: the map that ckpt_open gives after they were written,
 * with their tensors, values and metadata. Its paths begin with "view://". Free the map before the
 * view.
 *
 * Errors   those of ckpt_open and ckpt_view_read; CKPT_ELIMIT: more than 64 views are open;
 *          CKPT_EUNSUPPORTED: in a team
 */
CKPT_API int ckpt_view_open(ckpt_map **out, ckpt_view *view, const ckpt_open_opts *opts,
                            ckpt_err *err);

/* ---- signatures ---- */

/*
 * The signer's key or certificate: ckpt_sign signs with it, ckpt_signature_check trusts it. Keys
 * are of the elliptic curves P-256, P-384 and P-521. key and cert are PEM texts, key_name and
 * cert_name the paths that messages show.
 */
typedef struct ckpt_sign_opts {
    size_t size;           /* sizeof this struct, or 0: see ckpt.h */
    const char *signature; /* path of the bundle to write or read */
    /* ckpt_sign: the private key. ckpt_signature_check: the signer's public key, or NULL */
    const char *key, *key_name;
    /*
     * ckpt_sign: the signer's certificate and then its issuers, or NULL: sign with the key alone.
     * ckpt_signature_check: certificates to trust, instead of a key
     */
    const char *cert, *cert_name;
    bool follow_links;        /* read the files behind symbolic links; false: refuse links */
    const ckpt_run_opts *run; /* only jobs, force and progress count; or NULL */
    ckpt_finding_fn finding;  /* ckpt_signature_check: receives each difference, or NULL */
    void *finding_ctx;
    /* ckpt_signature_check: tag and whole_checkpoint; NULL: a shard stands for its checkpoint */
    const ckpt_open_opts *open;
} ckpt_sign_opts;

typedef struct ckpt_sign_report {
    size_t size; /* sizeof this struct, or 0: see ckpt.h; not changed */
    uint64_t n_files, n_bytes;
    char signer[256]; /* "key SHA256", or "certificate SUBJECT" */
} ckpt_sign_report;

/*
 * Sign a model: a folder with all files below it, or one file. The bundle is that of OpenSSF model
 * signing 1.0 (ckpt-signature(5)); git's files and the bundle itself are not part of it.
 *
 * Errors   CKPT_EUSAGE: a file is in the bundle's place, without run->force or that is no bundle;
 *          the certificate is for another key; CKPT_EUNSUPPORTED: another kind of key, a link, a
 *          temporary file of an interrupted run; CKPT_EDIGEST: a certificate no reader accepts;
 *          CKPT_EFORMAT, CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT, CKPT_ECANCELED
 */
CKPT_API int ckpt_sign(const char *path, const ckpt_sign_opts *opts, ckpt_sign_report *report,
                       ckpt_err *err);

/*
 * Check a signature, then compare the files with the signed list. Findings of severity 1: files
 * that the signer left out; a path that ckpt_open refuses, because ckpt cannot tell then whether
 * the model is also read from files outside of it.
 *
 * Errors   CKPT_EDIGEST: another key, a certificate that must not be trusted or has expired, a
 *          changed, removed, added or renamed file, a file that the checkpoint at path is read from
 *          and the list does not have; those of ckpt_sign
 */
CKPT_API int ckpt_signature_check(const char *path, const ckpt_sign_opts *opts,
                                  ckpt_sign_report *report, ckpt_err *err);

/* ---- attestations ---- */

/* An option of a conversion; value NULL: a flag. */
typedef struct ckpt_option {
    const char *name, *value;
} ckpt_option;

/* A conversion that has ended well. */
typedef struct ckpt_attest_opts {
    size_t size;                /* sizeof this struct, or 0: see ckpt.h */
    const char *command;        /* "convert" */
    const char *source;         /* path of the source as the user gave it; NULL: several */
    const char *target;         /* path of the result */
    const ckpt_option *options; /* of the command; may be NULL */
    size_t n_options;
    const char *const *operands; /* its other words; may be NULL */
    size_t n_operands;
    const ckpt_map *from, *to;     /* the maps of the run */
    const ckpt_run_report *report; /* of the run */
    const ckpt_run_opts *run;      /* only progress and force count; or NULL */
} ckpt_attest_opts;

/*
 * Write an in-toto statement about a conversion: the SHA-256 of the files of source and result, the
 * command, and the counts of the run (ckpt-signature(5)). It hashes the files of from, which must
 * not have changed since they were read, and of to. With force it replaces an older statement.
 *
 * Errors   CKPT_EUNSUPPORTED: a remote source; CKPT_EUSAGE: the file exists, and without force or
 *          if it is no statement is not replaced; CKPT_EIO, CKPT_ELIMIT, CKPT_ECANCELED
 */
CKPT_API int ckpt_attest_write(const char *file, const ckpt_attest_opts *opts, ckpt_err *err);

/* Check before a long run that ckpt_attest_write would find no other file there (CKPT_EUSAGE). */
CKPT_API int ckpt_attest_check_place(const char *file, bool force, ckpt_err *err);

typedef struct ckpt_attested ckpt_attested;

/*
 * Read such a statement.
 *
 * Errors   CKPT_EFORMAT; CKPT_EUNSUPPORTED: another kind of statement; CKPT_EMISSING, CKPT_EIO,
 *          CKPT_ELIMIT
 */
CKPT_API int ckpt_attest_read(ckpt_attested **out, const char *file, ckpt_err *err);
CKPT_API void ckpt_attest_free(ckpt_attested *a);

/* Option i of the command, NULL past the end; texts live as long as the statement. */
CKPT_API const ckpt_option *ckpt_attest_option_at(const ckpt_attested *a, size_t i);

/*
 * Compare the hashes of the statement with the files of the result at target and of the source.
 *
 * from     the source, opened with the options of the conversion
 * opts     its `finding` receives each difference
 * n_files  gets the number of files that were compared
 *
 * Errors   CKPT_EDIGEST: a file differs or is missing; CKPT_EIO, CKPT_ELIMIT, CKPT_ECANCELED
 */
CKPT_API int ckpt_attest_check(const ckpt_attested *a, const char *target, const ckpt_map *from,
                               const ckpt_verify_opts *opts, uint64_t *n_files, ckpt_err *err);
/* ---- manifests ---- */

/* The SHA-256 of the files and of the tensors of a checkpoint: see ckpt-manifest(5). */
typedef struct ckpt_manifest ckpt_manifest;

/* A file, or a tensor, and its hash. Texts live as long as the manifest. */
typedef struct ckpt_hashed {
    const char *name; /* of a file: its path below the checkpoint's folder */
    uint64_t n_bytes;
    ckpt_dtype dtype; /* of a tensor; a file has none, and no shape */
    uint32_t ndim;
    const uint64_t *shape;
    char sha256[65]; /* hexadecimal */
} ckpt_hashed;

typedef struct ckpt_manifest_opts {
    size_t size;                /* sizeof this struct, or 0: see ckpt.h */
    const ckpt_open_opts *open; /* with_optimizer is always set; or NULL */
    const ckpt_run_opts *run;   /* only jobs and progress count; or NULL */
    const ckpt_hashes *hashes;  /* of the run that has written path (ckpt_run_opts); or NULL */
    /* find and check, hub_check: the checkpoint with its optimizer; NULL: it is opened if needed */
    const ckpt_map *map;
} ckpt_manifest_opts;

/*
 * Hash a checkpoint of this machine: a file, a folder, or the newest tag of a run.
 *
 * Errors   CKPT_EUNSUPPORTED: a remote address; those of ckpt_open and of reading; CKPT_ECANCELED
 */
CKPT_API int ckpt_manifest_make(ckpt_manifest **out, const char *path,
                                const ckpt_manifest_opts *opts, ckpt_err *err);
CKPT_API void ckpt_manifest_free(ckpt_manifest *m);

/*
 * Read the manifest in a file.
 *
 * Errors   CKPT_EMISSING, CKPT_EIO; CKPT_EFORMAT: it is not a manifest; CKPT_EUNSAFE: it names a
 *          file outside of its folder; CKPT_EUNSUPPORTED: another schema; CKPT_ELIMIT
 */
CKPT_API int ckpt_manifest_read(ckpt_manifest **out, const char *file, ckpt_err *err);

/*
 * Read the manifest that lies beside a checkpoint; *out is NULL if there is none.
 *
 * opts     map, and open's tag of a run; NULL: the one that ckpt_open reads
 * Errors   those of ckpt_manifest_read; CKPT_EDIGEST: the manifest beside a file does not list it
 */
CKPT_API int ckpt_manifest_find(ckpt_manifest **out, const char *path,
                                const ckpt_manifest_opts *opts, ckpt_err *err);

/* The file that it was read from; of a new one, the file that ckpt_manifest_write would write. */
CKPT_API const char *ckpt_manifest_path(const ckpt_manifest *m);

/*
 * Write a manifest, and the list for sha256sum(1) beside it, which has the suffix .sha256 instead
 * of .json. Both replace older ones, and no other files.
 *
 * m        of ckpt_manifest_make
 * file     NULL: beside the checkpoint
 * Errors   CKPT_EUSAGE: file has another suffix than .json, or another file is there; CKPT_EIO,
 *          CKPT_ELIMIT
 */
CKPT_API int ckpt_manifest_write(const ckpt_manifest *m, const char *file, ckpt_err *err);

/*
 * Check before a long run that ckpt_manifest_write will find no other file in its way.
 *
 * path     of the checkpoint
 * file     NULL: beside the checkpoint
 * Errors   CKPT_EUSAGE, as of ckpt_manifest_write
 */
CKPT_API int ckpt_manifest_check_place(const char *path, const char *file, ckpt_err *err);

/*
 * Remove the manifest that lies beside a checkpoint, and its list, if they exist. A file of that
 * name that is not a manifest stays.
 */
CKPT_API int ckpt_manifest_remove(const char *path, ckpt_err *err);

/* The files, by name, and the tensors, in the checkpoint's order. NULL: past the end. */
CKPT_API size_t ckpt_manifest_file_count(const ckpt_manifest *m);
CKPT_API const ckpt_hashed *ckpt_manifest_file_at(const ckpt_manifest *m, size_t i);
CKPT_API size_t ckpt_manifest_tensor_count(const ckpt_manifest *m);
CKPT_API const ckpt_hashed *ckpt_manifest_tensor_at(const ckpt_manifest *m, size_t i);

/*
 * Compare the tensors of two manifests by name. CKPT_EDIFFERS: they differ; fn receives each
 * difference: `what` as in ckpt_difference, with "values" where the hashes differ; a or b is NULL
 * where that side lacks the tensor. A non-zero result of fn stops (CKPT_ECANCELED).
 */
typedef int (*ckpt_hashed_fn)(void *ctx, const char *what, const ckpt_hashed *a,
                              const ckpt_hashed *b);
CKPT_API int ckpt_manifest_diff(const ckpt_manifest *a, const ckpt_manifest *b, ckpt_hashed_fn fn,
                                void *ctx, ckpt_err *err);

/*
 * Hash a checkpoint again and compare it with its manifest: first the files; the tensors are read
 * only if a file differs, to name those that changed.
 *
 * finding  receives each difference, as from ckpt_verify; or NULL
 * Errors   CKPT_EDIGEST: the checkpoint differs; those of ckpt_manifest_make
 */
CKPT_API int ckpt_manifest_check(const ckpt_manifest *m, const char *path,
                                 const ckpt_manifest_opts *opts, ckpt_finding_fn finding, void *ctx,
                                 ckpt_err *err);

/*
 * Compare files with the hashes that the Hugging Face hub has given them: a file of its cache is a
 * link to a file that is named by the SHA-256.
 *
 * n        gets the number of files with a known hash; 0 if a file that the checkpoint is read from
 *          has none
 * Errors   CKPT_EDIGEST: a file differs; finding receives each
 */
CKPT_API int ckpt_hub_check(const char *path, const ckpt_manifest_opts *opts,
                            ckpt_finding_fn finding, void *ctx, uint64_t *n, ckpt_err *err);

/*
 * Hashes that a run takes of the bytes that it writes (ckpt_run_opts.hashes), for a manifest of
 * its output. One run fills them.
 */
CKPT_API int ckpt_hashes_new(ckpt_hashes **out, ckpt_err *err);
CKPT_API void ckpt_hashes_free(ckpt_hashes *h);

/* ---- cleaning ---- */

/*
 * A left-over of an interrupted run of this library: a temporary file, or a folder of incomplete
 * files.
 */
typedef struct ckpt_leftover {
    const char *name; /* name in the folder */
    bool is_dir;
    uint64_t n_bytes, n_files;
    int64_t age;      /* seconds since the last write to it */
    const char *kept; /* the reason why it stays; NULL: it was removed (dry_run: would be) */
} ckpt_leftover;

typedef struct ckpt_clean_opts {
    size_t size;  /* sizeof this struct, or 0: see ckpt.h */
    bool dry_run; /* remove nothing */
    /* remove young temporary files too, but never those that a live process has locked */
    bool force;
    /* called for each left-over; a non-zero return stops; or NULL */
    int (*leftover)(void *ctx, const ckpt_leftover *l);
    void *ctx;
} ckpt_clean_opts;

/*
 * Remove the left-overs of interrupted runs in a folder: unlocked ".NAME.ckpt-XXXXXX.tmp" files, if
 * the youngest of them is over an hour old; ".NAME.ckpt-partial" folders with an unlocked journal.
 * If such a run was replacing an output, ckpt first puts that output in order. It follows no
 * symbolic link.
 *
 * Errors   CKPT_EUSAGE: not a folder; CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT, CKPT_ECANCELED
 */
CKPT_API int ckpt_clean(const char *folder, const ckpt_clean_opts *opts, ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
