# After --, a path may look like an option.
ckpt ls -- --json
