# The second argument is needed.
zero_to_fp32 a
