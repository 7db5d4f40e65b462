# SPDX-License-Identifier: Apache-2.0
# The tag of a Megatron run would let readers take an FSDP run for Megatron's.
for format in dcp fsdp-ranks; do
    ckpt reshard -q "$FIXTURES/mcore_llama_distopt_dp2/ckpt" $format --to $format --world 2
    ls $format
    ckpt diff --with-optimizer "$FIXTURES/mcore_llama_distopt_dp2/ckpt" $format
done
