# SPDX-License-Identifier: Apache-2.0
# Lightning keeps the loops, the schedule and the hyperparameters of a sharded checkpoint in meta.pt beside it: values of the run.
cat >make.py <<'EOF'
import pickle, sys, zipfile

folder, meta = sys.argv[1], eval(sys.argv[2])
with zipfile.ZipFile(folder + '/meta.pt', 'w', zipfile.ZIP_STORED) as z:
    z.writestr('a/data.pkl', pickle.dumps(meta, 2))
    z.writestr('a/version', '3\n')
EOF
src=$FIXTURES/titan_llama3_fused_w3/ckpt/checkpoint
ckpt reshard -q "$src" dcp --to dcp --to-tag x --map torchtitan:hf --size heads=3 --size kv=3
try() {
    python3 make.py dcp/x "$1"
    ckpt reshard --force dcp/x zero --stage 1 2>&1 | grep meta.pt
    echo tree:
    ckpt tree zero | grep -E 'lightning_version|last_epoch|hyper|width|lr_schedulers'
}
# this run has a schedule of its own
try "{'pytorch-lightning_version': '2.6.6', 'lr_schedulers': [{'last_epoch': 5}], 'hyper_parameters': {'width': 32}}"
# two schedules are not one; names that the run has, and a key that is none, are said
try "{'pytorch-lightning_version': '2.6.6', 'lr_schedulers': [{'last_epoch': 5}, {'last_epoch': 6}], 'global_steps': 9, 7: 8}"
# of another program
try "{'width': 32}"
printf 'no archive' >dcp/x/meta.pt
ckpt reshard -q --force dcp/x zero --stage 1
echo "status $?"
