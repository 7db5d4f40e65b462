# SPDX-License-Identifier: Apache-2.0
# A look at two elements that does not read the record's other bytes: damage in them goes unseen, as the page says.
ckpt convert -q "$FIXTURES"/z1_bf16_w3_groups/ckpt m.pt
at=$(ckpt ls --json -l m.pt --include wte.weight | sed -n 's/.*"offset": \([0-9]*\).*/\1/p')
printf '\125' | dd of=m.pt bs=1 seek=$((at + 400)) conv=notrunc 2>/dev/null
ckpt cat -q m.pt wte.weight -r 0:2
echo "$?"
ckpt cat -q m.pt wte.weight -r 0:2 --no-crc
echo "$?"
ckpt cat -q "$FIXTURES"/hf_bert_sharded cls.predictions.bias -r 0:1 --no-crc
