# Without a command.
ckpt
