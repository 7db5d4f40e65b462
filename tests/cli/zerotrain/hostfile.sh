# SPDX-License-Identifier: Apache-2.0
# What mpirun is told: hosts and slots of the hostfile, after the filters; not the launcher's own options.
mkdir bin
printf '#!/bin/sh\nfor a in "$@"; do printf "%%s " "$a"; done\necho\n' >bin/mpirun
chmod +x bin/mpirun
PATH=$PWD/bin:$PATH
printf 'a slots=4\nb slots=2 # half\n\nc slots=4\n' >hosts
try() {
    zerotrain "$@" | sed "s|$CKPT/||"
}
try --hostfile hosts --model m --deepspeed_config=ds.json
try --hostfile=hosts --include a@c:1,2 --model m
try --hostfile hosts --include a:1,3@b:1
try --hostfile hosts --exclude a:0@b@c
try --hostfile hosts --exclude b --quiet
try --num-nodes 2 --hostfile hosts --num_gpus=1 --epochs 3
try --num_gpus 3 --max-steps 2
