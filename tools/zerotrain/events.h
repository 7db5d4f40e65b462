/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h: declares the records of TensorBoard's event files, each of which frames an Event
 * message.
 *
 * A record (TFRecord): length as 8 bytes, masked CRC-32C of them, the message, masked CRC-32C of
 * it; little-endian.  Messages are Protocol Buffers: event.proto and summary.proto of TensorFlow.
 */
#ifndef TOOLS_ZEROTRAIN_EVENTS_H
#define TOOLS_ZEROTRAIN_EVENTS_H

#include "libckpt/base/vec.h"

/* Append the first record of a file; wall: seconds since 1970.  False: no memory. */
bool events_version(ckpt_bytes *to, double wall);

/* Append a record of one number: its name, and its position on the x axis. */
bool events_scalar(ckpt_bytes *to, double wall, int64_t x, const char *name, double value);

#endif
