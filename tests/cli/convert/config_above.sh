# SPDX-License-Identifier: Apache-2.0
# A checkpoint's folder whose run folder has the configuration: the sandbox does not hide it.
mkdir dcp ranks megatron
cp -r "$FIXTURES/dcp_plain_w2/ckpt" dcp/step && cp -r "$FIXTURES/rl_verl_fsdp1_w2/ckpt" ranks/step && rm -rf ranks/step/huggingface
cp -r "$FIXTURES/mlegacy_gpt2_tp2_pp2/ckpt/iter_0000003" megatron/step
for run in dcp ranks megatron; do
    echo '{"keeps": "this"}' >$run/config.json
    chmod -R u+w $run
    for options in "" --no-sandbox; do
        ckpt convert -q $run/step out --to hf -f --map none $options 2>/dev/null && echo "$run: $(grep -c keeps out/config.json)"
        rm -rf out
    done
    (cd $run/step && ckpt convert -q . ../../out --to hf --map none 2>/dev/null && grep -c keeps ../../out/config.json)
    rm -rf out
done
