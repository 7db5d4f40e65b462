# Help on a command that is none.
ckpt help consolidate
