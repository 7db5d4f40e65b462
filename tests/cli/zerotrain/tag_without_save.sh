# SPDX-License-Identifier: Apache-2.0
# Options that do nothing without another one.
for o in "--tag x" "--keep 2" "--save-every 1" --async-save "--load-tag x" --module-only "--eval-every 1"; do
    zerotrain $o
    echo "exit status $?"
done
