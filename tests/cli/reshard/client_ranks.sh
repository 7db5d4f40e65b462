# SPDX-License-Identifier: Apache-2.0
# The training program's values that differ by rank (stage 3) stay with their ranks, or what is lost is named.
here=$FIXTURES/../cli
run() { # NAME VALUES: the fixture, with the values of the rank in the list's place
    cp -r "$FIXTURES/z3_bf16_w5_odd/ckpt" "$1"
    chmod -R u+w "$1"
    rank=0
    for value in $2; do
        python3 "$here/client_values.py" "$1/global_step4/zero_pp_rank_${rank}_mp_rank_00_model_states.pt" $value
        rank=$((rank + 1))
    done
}
run run "0 1 2 3 4"
ckpt verify run
echo "-- as many ranks"
ckpt reshard run same --dtype f16 -q
echo "status $?"
for rank in 0 1 3 4; do
    ckpt tree same/global_step4/zero_pp_rank_${rank}_mp_rank_00_model_states.pt sampler
    ckpt cat same/global_step4/zero_pp_rank_${rank}_mp_rank_00_model_states.pt rng
done
ckpt reshard run again -q
ckpt diff run again
ckpt verify again --made-from run | tail -n 2
echo "-- one rank has another value"
run changed "0 1 2 4 4"
ckpt diff run changed
ckpt verify changed --made-from run
echo "status $?"
run common "0 0 0 0 0"
ckpt diff common run
echo "-- fewer ranks, another stage, another framework"
ckpt reshard run two --world 2 -q
ckpt verify -q two --made-from run
echo "status $?"
ckpt reshard run stage2 --stage 2 -q
ckpt reshard run dcp --to dcp -q
ckpt reshard run universal --to universal -q
echo "-- tensor-parallel ranks, joined and apart"
cp -r "$FIXTURES/tp2_z1_w4/ckpt" parallel
chmod -R u+w parallel
for rank in 0 1; do
    python3 "$here/client_values.py" parallel/global_step*/mp_rank_0${rank}_model_states.pt $rank
done
ckpt reshard parallel joined --join --world 2 -q
echo "status $?"
ckpt tree joined/global_step4/mp_rank_00_model_states.pt sampler
ckpt reshard parallel apart --world 1 -q
echo "status $?"
ckpt tree apart/global_step4/mp_rank_01_model_states.pt sampler
echo "-- FSDP's ranks"
ckpt reshard "$FIXTURES/z3_bf16_w5_odd/ckpt" ranks --to fsdp-ranks --world 2 -q
for rank in 0 1; do
    python3 "$here/client_values.py" ranks/global_step4/extra_state_world_size_2_rank_${rank}.pt $((3 * rank)) 2>&1
done
ckpt verify ranks
ckpt reshard ranks/global_step4 zero --to zero --world 2
echo "-- a universal checkpoint with the model files of all ranks, as DeepSpeed's script writes it"
rm universal/*/*mp_rank_00_model_states.pt
cp run/global_step4/zero_pp_rank_*_model_states.pt universal/*/
ckpt reshard universal five --stage 3 --world 5 -q
ckpt tree five/*/zero_pp_rank_2_mp_rank_00_model_states.pt sampler
ckpt reshard universal four --stage 3 --world 4 -q
rm universal/*/zero_pp_rank_4_*
ckpt reshard universal fewer --stage 3 --world 5 -q
echo "-- a tensor of the training program, and values of one rank's file"
run other "1 1 1 1 1"
for target in "zero --stage 3" "zero --stage 2" "zero --stage 1 --world 2" dcp fsdp-ranks universal; do
    echo "$target"
    ckpt reshard -q common out --force --to $target 2>/dev/null
    ckpt verify -q out --made-from common 2>/dev/null
    echo "status $?"
    ckpt verify -q out --made-from other 2>/dev/null | grep -m 1 rng
    [ "$target" = fsdp-ranks ] && mv out of_ranks
    rm -rf out
done
python3 - of_ranks/global_step4/extra_state_world_size_5_rank_3.pt <<'END'
import sys, zipfile
path = sys.argv[1]
with zipfile.ZipFile(path) as z:
    records = [(i.filename, z.read(i)) for i in z.infolist()]
with zipfile.ZipFile(path, 'w') as z:
    for name, data in records:
        at = data.find(b'K\x28', data.index(b'seen')) if name.endswith('data.pkl') else -1
        z.writestr(name, data[:at + 1] + b'\x29' + data[at + 2:] if at >= 0 else data)
END
ckpt verify -q of_ranks --made-from common
echo "status $?"
echo "-- a module's value of one rank that is no buffer"
run module "0 0 0 0 0"
python3 "$here/../hostile/planted.py" --into module/global_step4/zero_pp_rank_4_mp_rank_00_model_states.pt module text
ckpt verify -q module
ckpt reshard module module-out -q
