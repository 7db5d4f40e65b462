/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_name.h: names the files of a manifest (ckpt-manifest(5)). */
#ifndef CKPT_IO_MANIFEST_NAME_H
#define CKPT_IO_MANIFEST_NAME_H

#include <stdbool.h>

/* In the folder of a checkpoint; beside a file, "FILE.manifest.json". */
#define CKPT_MANIFEST_STEM   "ckpt-manifest"
#define CKPT_MANIFEST_NAME   CKPT_MANIFEST_STEM ".json"
#define CKPT_MANIFEST_BESIDE ".manifest.json"

/* The list for sha256sum has this suffix instead of the manifest's. */
#define CKPT_MANIFEST_JSON ".json"
#define CKPT_MANIFEST_LIST ".sha256"

/*
 * True for the name of a manifest, or of the list beside it: it describes other files, so a
 * conversion does not copy it.
 */
bool ckpt_manifest_is(const char *name);

#endif
