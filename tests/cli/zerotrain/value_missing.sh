# The last option lacks its value.
zerotrain --model
