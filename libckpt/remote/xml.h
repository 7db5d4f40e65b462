/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml.h: parses the XML answers of storage services: elements and their texts only.
 */
#ifndef CKPT_REMOTE_XML_H
#define CKPT_REMOTE_XML_H

#include "libckpt/base/vec.h"

#define CKPT_XML_DEPTH 16u         /* depth of nested elements */
#define CKPT_XML_NAME  64u         /* bytes of a name, with its terminator */
#define CKPT_XML_TEXT  (64u << 10) /* bytes of a text */

/*
 * Called at the end of every element.
 *
 * depth  1: the root
 * name   without a namespace prefix
 * text   for an element without children: its text with entities and CDATA decoded, terminated and
 *        free of NULs; else NULL
 * Returns  CKPT_OK, or a failure that ends the parsing
 */
typedef int ckpt_xml_end_fn(void *ctx, unsigned depth, const char *name, const char *text,
                            ckpt_err *err);

/*
 * Parse a document of n bytes.  Attributes, comments and processing instructions are skipped.
 *
 * name  for messages
 * Errors   CKPT_EFORMAT: not well formed, or a document type, which is refused because it could
 *          define entities; CKPT_ELIMIT: over a limit above, or out of memory; the code that `end`
 *          returned
 * Source   https://www.w3.org/TR/xml/: 2.4 to 2.7, 3.1, 4.1, 4.6
 */
int ckpt_xml_read(const char *name, const char *at, size_t n, ckpt_xml_end_fn *end, void *ctx,
                  ckpt_err *err);

#endif
