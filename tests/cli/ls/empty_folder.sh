# A folder without a checkpoint.
mkdir empty
ckpt ls empty
