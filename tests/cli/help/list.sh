# The list of commands.
ckpt help
