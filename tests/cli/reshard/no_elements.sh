# SPDX-License-Identifier: Apache-2.0
# Parameters and buffers without elements: stage 3 has each parameter as a tensor (0,), whatever its shape; buffers stay what they are.
run=$FIXTURES/z13_fp32_w2_emptyparam
old=$FIXTURES/old0316_z3_fp16_w2_emptybuffer/ckpt
for from in z1 z3; do
    for stage in 1 2 3; do
        ckpt reshard -q --stage $stage -w 3 $run/$from to || exit
        echo "== $from to stage $stage"
        for f in to/global_step3/*model_states.pt; do
            ckpt tree "$f" module | grep 'emb.1:'
            ckpt tree "$f" frozen_param_shapes | grep 'emb.1'
            ckpt tree "$f" frozen_param_fragments | grep 'emb.1'
        done
        rm -r to
    done
done
for release in 0.3.16 0.19.8; do
    for stage in 2 3; do
        ckpt reshard -q --stage $stage --deepspeed-version $release -w 2 $old to || exit
        echo "== 0.3.16 to stage $stage of $release"
        for f in to/global_step6/*model_states.pt; do
            ckpt tree "$f" module | grep 'nothing:\|columns:'
        done
        rm -r to
    done
done
