# Nothing to go by.
zerotrain --model "$FIXTURES"/sentiment --data "$FIXTURES"/sentiment/train.tsv
