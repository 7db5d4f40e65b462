# SPDX-License-Identifier: Apache-2.0
# Counts may end in K, M, B (10^9) or T, with a fraction.
ckpt mem --params 7B --json | grep params
ckpt mem --params 1.5b --largest-layer 350M --json | grep 'params\|largest'
ckpt mem --params 7000000000 --json | grep params
ckpt mem --params 7e9 --json | grep params
ckpt mem --params 1.5E9 --json | grep params
for n in 1e13 1e 1e-3 1.2345e3 1.0005K 0B 7Q 1.5 -7B B 7BB 99999999999T; do ckpt mem --params=$n; echo $?; done
