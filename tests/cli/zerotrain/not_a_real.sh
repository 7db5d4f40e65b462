# What is not finite is no rate.
zerotrain --learning_rate nan
