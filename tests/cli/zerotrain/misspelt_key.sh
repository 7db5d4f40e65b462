# SPDX-License-Identifier: Apache-2.0
# A key that is not known has no effect: that is said, also in quiet runs, and can be an error.
. "$FIXTURES"/../cli/zerotrain_help.inc
sed -i 's/"steps_per_print"/"gradient_cliping": 1.0, "my_own": 1, "steps_per_print"/' ds.json
train --quiet --max-steps 1
echo "$?"
train --quiet --max-steps 1 --strict-config
echo "$?"
