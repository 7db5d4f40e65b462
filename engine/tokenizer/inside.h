/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h: declares the parts of a tokenizer for each other.  Internal. */
#ifndef ZT_TOKENIZER_INSIDE_H
#define ZT_TOKENIZER_INSIDE_H

#include "engine/tokenizer/tokenizer.h"
#include "libckpt/base/index.h"

/* ---- vocab.c: tokens by text ---- */

typedef struct tz_token {
    const char *text;
    uint32_t n; /* bytes */
    int32_t id;
    double score; /* unigram: logarithm of the probability */
} tz_token;
CKPT_VEC(tz_tokens, tz_token);

typedef struct tz_vocab {
    tz_tokens token;
    ckpt_index by_text;
    int32_t last; /* the largest number; -1: none */
} tz_vocab;

enum { TZ_TOKENS = 1 << 24 /* limit of tokens, and of their numbers */ };

/*
 * Add a token, whose text must outlive v; of equal texts the first stays.
 * Errors CKPT_EFORMAT: a number out of range; CKPT_ELIMIT
 */
int tz_vocab_add(tz_vocab *v, const tz_token *token, ckpt_err *err);
const tz_token *tz_vocab_find(const tz_vocab *v, const char *s, size_t n); /* or NULL */
void tz_vocab_free(tz_vocab *v);

/* Numbers of the tokens <0x00> to <0xFF>, -1 for those that are missing. */
void tz_vocab_bytes(const tz_vocab *v, int32_t out[256]);

/* ---- sorted.c: keys that begin a text ---- */

typedef struct tz_sorted {
    const tz_token **at; /* sorted by bytes; a key before those that it begins */
    uint32_t n;
    uint32_t first[257]; /* index of the first key that begins with a byte */
} tz_sorted;

/* Sort n tokens of different texts; they must outlive s.  Errors CKPT_ELIMIT */
int tz_sorted_make(tz_sorted *s, const tz_token *token, size_t n, ckpt_err *err);
void tz_sorted_free(tz_sorted *s);

/* An iteration over the keys that begin a text, from the shortest; zero it first. */
typedef struct tz_walk {
    uint32_t lo, hi;
    size_t depth;
} tz_walk;
const tz_token *tz_walk_next(const tz_sorted *s, tz_walk *w, const char *text, size_t n);

/* ---- regex.c ---- */

typedef struct tz_regex tz_regex;

/* Compile a pattern.  Errors CKPT_EUNSUPPORTED: PCRE2 refuses it; CKPT_ELIMIT */
int tz_regex_new(tz_regex **out, ckpt_text pattern, ckpt_err *err);
void tz_regex_free(tz_regex *r);

typedef struct tz_match {
    size_t from, to; /* to SIZE_MAX: there is none */
} tz_match;

/* A pattern of tokenizer.json: a text, or a regular expression. */
typedef struct tz_pattern {
    ckpt_text text;
    tz_regex *regex; /* or NULL */
} tz_pattern;
int tz_pattern_read(tz_pattern *out, const ckpt_value *v, ckpt_err *err);

/*
 * Find the first match in text[from..n).
 * Errors CKPT_ELIMIT: the match takes too many steps
 */
int tz_pattern_find(const tz_pattern *p, ckpt_text text, size_t from, tz_match *out, ckpt_err *err);

/* ---- fields.c ---- */

/* True for a BOOL that is true; `absent` if v lacks the key. */
bool tz_flag(const ckpt_value *v, const char *key, bool absent);
/* The text of a value for messages. */
const char *tz_said(const ckpt_value *v);

/* ---- chars.c ---- */

/* Decode the character at s, which is valid UTF-8; returns its bytes. */
size_t tz_char(uint32_t *c, const char *s);
bool tz_is_space(uint32_t c);   /* White_Space of Unicode */
bool tz_is_word(uint32_t c);    /* \w */
bool tz_is_mark(uint32_t c);    /* punctuation of Unicode, or printing ASCII that is no letter */
bool tz_is_numeric(uint32_t c); /* category N */

/* ---- normal.c ---- */

typedef enum tz_normal_kind {
    TZ_NFC,
    TZ_NFD,
    TZ_NFKC,
    TZ_NFKD,
    TZ_LOWER,
    TZ_PREPEND,
    TZ_REPLACE,
    TZ_STRIP,
    TZ_STRIP_ACCENTS,
    TZ_CHARSMAP
} tz_normal_kind;

typedef struct tz_charsmap tz_charsmap;

typedef struct tz_normal {
    tz_normal_kind kind;
    ckpt_text text; /* PREPEND; REPLACE: by it */
    tz_pattern pattern;
    bool left, right; /* STRIP */
    tz_charsmap *map;
} tz_normal;
CKPT_VEC(tz_normals, tz_normal);

/* Append the normalizers of tokenizer.json.  Errors as zt_tokenizer_open. */
int tz_normal_read(tz_normals *out, const ckpt_value *v, unsigned depth, ckpt_err *err);
void tz_normal_free(tz_normals *all);

/*
 * Normalize *text in place, using *spare.
 * Errors  CKPT_EFORMAT: a table of characters makes text that is not UTF-8; CKPT_ELIMIT
 */
int tz_normal_run(const tz_normals *all, ckpt_bytes *text, ckpt_bytes *spare, ckpt_err *err);

/* charsmap.c.  Errors CKPT_EFORMAT; append the map of s to `to`, false: out of memory. */
int tz_charsmap_new(tz_charsmap **out, const char *bytes, uint64_t n, ckpt_err *err);
void tz_charsmap_free(tz_charsmap *m);
bool tz_charsmap_run(const tz_charsmap *m, ckpt_bytes *to, const uint8_t *s, size_t n);

/* ---- split.c ---- */

typedef struct tz_piece {
    size_t at, n;
} tz_piece;
CKPT_VEC(tz_pieces, tz_piece);

typedef enum tz_split_kind {
    TZ_BY_PATTERN, /* the other kinds are classes of characters */
    TZ_BY_DIGITS,
    TZ_BY_SPACE,
    TZ_BY_MARK,
    TZ_BY_WORD,
    TZ_METASPACE,
    TZ_BYTE_LEVEL
} tz_split_kind;

typedef enum tz_behavior {
    TZ_REMOVED,
    TZ_ISOLATED,
    TZ_MERGED_WITH_PREVIOUS,
    TZ_MERGED_WITH_NEXT,
    TZ_CONTIGUOUS
} tz_behavior;

typedef enum tz_prefix { TZ_NEVER, TZ_FIRST, TZ_ALWAYS } tz_prefix;

typedef struct tz_split {
    tz_split_kind kind;
    tz_behavior behavior;
    tz_pattern pattern;
    bool invert, cut; /* METASPACE, BYTE_LEVEL: cut into words */
    tz_prefix prefix;
    ckpt_text space; /* METASPACE: the replacement of a blank */
} tz_split;
CKPT_VEC(tz_splits, tz_split);

/* Append the pre-tokenizers of tokenizer.json.  Errors as zt_tokenizer_open. */
int tz_split_read(tz_splits *out, const ckpt_value *v, unsigned depth, ckpt_err *err);
void tz_split_free(tz_splits *all);

/* A text and its pieces, with memory for the next ones. */
typedef struct tz_work {
    ckpt_bytes text, spare;
    tz_pieces piece, next;
    bool first; /* the text begins the input of the tokenizer */
} tz_work;

/* Split w->text, whose pieces are set to be all of it.  Errors CKPT_ELIMIT */
int tz_split_run(const tz_splits *all, tz_work *w, ckpt_err *err);

/* ---- models ---- */

typedef struct tz_bpe tz_bpe;
typedef struct tz_unigram tz_unigram;

/* Settings that both models have. */
typedef struct tz_model_opts {
    const tz_vocab *vocab;
    int32_t unknown; /* number of the token for unknown text; -1: none */
    bool byte_fallback, fuse_unknown;
    // BPE only
    bool byte_level;    /* texts of tokens are bytes, not characters */
    bool ignore_merges; /* a word that is a token is not taken apart */
} tz_model_opts;

/* Two texts that become one token; lower ranks first, equal ones from the left. */
typedef struct tz_merge {
    int32_t left, right, to;
    uint32_t rank;
} tz_merge;
CKPT_VEC(tz_merges, tz_merge);

/* A model for the merges (not kept).  *out is set even on failure.  Errors CKPT_ELIMIT */
int tz_bpe_new(tz_bpe **out, const tz_model_opts *o, const tz_merges *merges, ckpt_err *err);
void tz_bpe_free(tz_bpe *b); /* NULL is fine */
/* Append the tokens of one word.  Errors CKPT_ELIMIT */
int tz_bpe_encode(tz_bpe *b, const char *word, size_t n, zt_ids *out, ckpt_err *err);

/* A model of o->vocab's scores.  *out is set even on failure.  Errors CKPT_ELIMIT */
int tz_unigram_new(tz_unigram **out, const tz_model_opts *o, ckpt_err *err);
void tz_unigram_free(tz_unigram *u); /* NULL is fine */
/*
 * Append the tokens of one word.  Errors CKPT_EFORMAT: a character is no piece, and there is no
 * token for unknown text; CKPT_ELIMIT
 */
int tz_unigram_encode(tz_unigram *u, const char *s, size_t n, zt_ids *out, ckpt_err *err);

/* ---- decode.c ---- */

/* A token as text. */
typedef struct tz_shown {
    const char *text;
    uint32_t n; /* bytes */
    int32_t id;
    bool added, special;
    bool bytes; /* the text is bytes, and not in the alphabet of bytes */
} tz_shown;
CKPT_VEC(tz_showns, tz_shown);

/* The order is that of the names in decode.c. */
typedef enum tz_step_kind {
    TZ_BYTES,
    TZ_METASPACES,
    TZ_FALLBACK,
    TZ_FUSE,
    TZ_STRIP_CHAR,
    TZ_REPLACE_TEXT,
    TZ_WORDPIECES,
    TZ_STEP_OTHER /* another kind: decoding refuses it, encoding does not need it */
} tz_step_kind;

typedef struct tz_step {
    tz_step_kind kind;
    ckpt_text text; /* the character, the prefix, the replacement; OTHER: the name */
    uint64_t start, stop;
    bool flag; /* METASPACES: no blank at the begin; WORDPIECES: clean up */
    tz_pattern pattern;
} tz_step;
CKPT_VEC(tz_steps, tz_step);

/* Append the steps of a decoder; they point to its texts.  Errors as zt_tokenizer_open. */
int tz_decoder_read(tz_steps *out, const ckpt_value *v, unsigned depth, ckpt_err *err);
void tz_decoder_free(tz_steps *all);

/* Note the text of a token, in any order; sort them at the end.  Errors CKPT_ELIMIT */
int tz_show(zt_tokenizer *t, const tz_shown *one, ckpt_err *err);
void tz_show_sort(zt_tokenizer *t);

/* ---- tokenizer.c, file.c, spm.c ---- */

/* The byte that a character of GPT-2's alphabet of bytes stands for; -1: another character. */
int tz_byte_of(uint32_t c);

/* A token that is found in text before the model sees it. */
typedef struct tz_added {
    int32_t id;
    bool single_word, left, right; /* takes white space on a side */
} tz_added;
CKPT_VEC(tz_addeds, tz_added);

struct zt_tokenizer {
    ckpt_arena *arena;
    tz_vocab vocab;
    tz_vocab raw, normal;    /* added tokens to find before and after normalization: by id the
                                index in added */
    tz_sorted raws, normals; /* the same, sorted */
    tz_addeds added;
    tz_normals normalizer;
    tz_splits split;
    tz_bpe *bpe; /* one of these */
    tz_unigram *unigram;
    zt_ids before, after; /* tokens of the post-processor */
    tz_showns shown;      /* sorted by number */
    tz_steps decoder;
    bool byte_level; /* the vocabulary's texts are bytes */
    tz_work work;
};

/* Read tokenizer.model into an empty tokenizer.  Errors as zt_tokenizer_open. */
int tz_spm_read(zt_tokenizer *t, const char *path, ckpt_err *err);

/* Read tokenizer.json into an empty tokenizer.  Errors as zt_tokenizer_open. */
int tz_file_read(zt_tokenizer *t, const char *path, ckpt_err *err);

#endif
