# SPDX-License-Identifier: Apache-2.0
# Processes of a launcher that MPI knows nothing of would be as many runs over the same files: refused, with the way to do it.
. "$FIXTURES"/../cli/zerotrain_help.inc
for told in WORLD_SIZE=2 RANK=1 LOCAL_RANK=1 'SLURM_NTASKS=4 SLURM_PROCID=2' OMPI_COMM_WORLD_RANK=1; do
    env $told zerotrain --deepspeed_config ds.json --model "$S" --data "$S"/train.tsv --max-steps 1 --save run 2>text
    echo "$told: exit status $?, $(grep -c 'mpirun -n N zerotrain' text) line"
done
zerotrain --local_rank 1 --model "$S"
echo "exit status $?"
ls
train --quiet --max-steps 1 --num_gpus 2 --save run # it starts mpirun itself
WORLD_SIZE=1 RANK=0 train --quiet --max-steps 1 && SLURM_NTASKS=2 train --quiet --max-steps 1 --num_gpus 2 && echo well
