# No fewer than none.
zerotrain --max-steps -1
