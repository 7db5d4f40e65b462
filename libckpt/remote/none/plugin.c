/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c: in the place of ../plugin.c where the program is one static file, which can load
 * nothing.
 */
#include "libckpt/remote/fetch.h"

int ckpt_wire_load(const ckpt_wire_plugin **out, ckpt_err *err)
{
    (void)out;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "this ckpt is one static file, which can load no library: addresses are read "
                     "by one that was built or installed with libcurl");
}
