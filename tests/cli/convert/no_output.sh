# SPDX-License-Identifier: Apache-2.0
# What no output can be: addresses of any scheme, devices, pipes, links to them; --force replaces none of them.
model=$FIXTURES/hf_bert_sharded
run=$FIXTURES/z1_bf16_w3_groups/ckpt
mkfifo pipe
ln -s /dev/null device
ln -s pipe to_pipe
echo mine >mine.safetensors
ln -s mine.safetensors link.safetensors
ln -s nowhere.safetensors dangling.safetensors
mkdir folder
ln -s folder to_folder
for target in s3://bucket/x hf://a/b https://host/x.safetensors GS://bucket/x.gguf file:///tmp/x; do
    ckpt convert "$model" "$target"
    ckpt convert --force --no-sandbox --to torch "$model" "$target"
    ckpt merge "$model" "$model" -o "$target"
    ckpt reshard "$run" "$target"
    zero_to_fp32 "$run" "$target"
    zero_to_torch "$run" "$target"
    ds_to_universal --input_folder "$run/global_step4" --output_folder "$target"
    ckpt report "$model" -o "$target"
    ckpt mem "$model" --svg "$target"
    ckpt mount "$model" "$target" --to hf
done 2>&1 | grep -v '^Try' | sort | uniq -c | sed 's/^ *//'
for target in /dev/null pipe device to_pipe link.safetensors dangling.safetensors; do
    ckpt convert "$model" "$target"
    ckpt convert --force --no-sandbox --to safetensors "$model" "$target"
    ckpt convert --force --dry-run --to torch "$model" "$target"
    ckpt merge --force "$model" "$model" --to safetensors -o "$target"
    zero_to_fp32 "$run" "$target"
    ckpt report --force "$model" -o "$target"
    ckpt mem "$model" --svg "$target"
done 2>&1 | grep -v '^Try' | sort | uniq -c | sed 's/^ *//'
# nothing was replaced, no folder was made
test -c /dev/null && test -p pipe && cat mine.safetensors
find . | sort
# where the hint for a device leads: standard output
ckpt convert -q --to safetensors "$model" - >piped.safetensors && ckpt ls -q piped.safetensors | wc -l
# and where that of a link does
ckpt convert -q --force "$model" mine.safetensors && ckpt ls -q link.safetensors | wc -l
# a path that looks like a scheme is said with its folder
ckpt convert -q "$model" ./s3:/m.safetensors && ls s3:
# a link to a folder is the folder
ckpt convert -q --to hf "$model" to_folder/new && ls folder
