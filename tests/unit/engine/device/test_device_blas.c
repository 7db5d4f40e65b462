/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_blas.c: runs the tests of blas.h with the products of this processor. */
#include "tests/unit/engine/device/blas.h"

int main(void)
{
    return blas_tests();
}
