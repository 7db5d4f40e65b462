# SPDX-License-Identifier: Apache-2.0
# Nothing to go by.
zerotrain --model "$FIXTURES"/sentiment --data "$FIXTURES"/sentiment/train.tsv
