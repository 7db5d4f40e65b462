# SPDX-License-Identifier: Apache-2.0
# The caller gives the order, in two groups; what is not listed is frozen.
ckpt ls -q "$FIXTURES"/hf_bert_sharded | grep "layer.*dense.weight" >names
{ echo; echo "# no decay"; ckpt ls -q "$FIXTURES"/hf_bert_sharded | grep "layer.*dense.bias"; } >>names
ckpt reshard -q -w 2 -s 2 --order names "$FIXTURES"/hf_bert_sharded run
ckpt info run | sed -n "/groups/p; /weight /p; /frozen /p"
ckpt tree run model_states.param_shapes
ckpt reshard -w 2 -s 2 --order stored "$FIXTURES"/hf_bert_sharded run2 2>&1 | grep -c "in the order of the list"
