# SPDX-License-Identifier: Apache-2.0
# Open MPI's mpirun refuses root, as in a container, unless told otherwise: where it is started from here, it is.
mkdir bin
printf '#!/bin/sh\necho "$OMPI_ALLOW_RUN_AS_ROOT $OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"\n' >bin/mpirun
chmod +x bin/mpirun
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
want=' '
[ "$(id -u)" = 0 ] && want='1 1'
[ "$(PATH=$PWD/bin:$PATH zerotrain --num_gpus 2 --model m)" = "$want" ] && echo as it should be
OMPI_ALLOW_RUN_AS_ROOT=0 PATH=$PWD/bin:$PATH zerotrain --num_gpus 2 --model m | cut -c 1
