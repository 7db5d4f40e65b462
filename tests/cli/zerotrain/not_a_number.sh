# A word for a number.
zerotrain --max-steps many
