/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drivers.h: declares the list of format drivers, for code that chooses one. Drivers themselves do
 * not include it.
 */
#ifndef CKPT_DRIVERS_H
#define CKPT_DRIVERS_H

#include "libckpt/format.h"

/* The one list of drivers (formats/table.c), NULL-terminated, most specific first. */
extern const ckpt_format *const ckpt_formats[];
extern const ckpt_directory *const ckpt_directories[];

/* By name or alias; NULL: there is none. */
const ckpt_format *ckpt_driver_find(const char *name);
const ckpt_directory *ckpt_directory_find(const char *name);

/*
 * Read one file of any known file format into a new map; the content selects the driver.
 *
 * beside  see ckpt_read_beside; NULL: there are no similar files
 * Errors  CKPT_EFORMAT (unknown or damaged), CKPT_EUNSAFE, CKPT_EUNSUPPORTED, CKPT_EMISSING,
 *         CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_format_read(ckpt_map **out, const char *path, const ckpt_read_beside *beside,
                     ckpt_err *err);

/* True if a directory driver recognises the folder as a checkpoint, complete or damaged. */
bool ckpt_folder_known(const ckpt_listing *list);

/*
 * True if the checkpoint is one file with a dict from a program; its tensor names are then paths of
 * keys.
 */
bool ckpt_is_dict(const ckpt_map *map);

#endif
