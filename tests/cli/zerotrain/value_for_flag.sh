# A flag takes no value.
zerotrain --quiet=yes
