# SPDX-License-Identifier: Apache-2.0
# A run of Megatron-LM: iterations that were not finished, and the tracker file, which can be set right.
cp -r "$FIXTURES"/mcore_llama_distopt_dp2/ckpt run
chmod -R u+w run
cp -r run/iter_0000003 run/iter_0000004
rm run/iter_0000004/metadata.json
mkdir run/iter_0000005
cp run/iter_0000003/__0_0.distcp run/iter_0000005
ckpt doctor run
printf 5 >run/latest_checkpointed_iteration.txt
ckpt doctor --fix-latest run
cat run/latest_checkpointed_iteration.txt
echo
printf ../x >run/latest_checkpointed_iteration.txt
ckpt doctor -q run
echo $?
ckpt doctor run/iter_0000004
echo $?
