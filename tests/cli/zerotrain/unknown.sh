# An option that there is not.
zerotrain --no-such-option 1
