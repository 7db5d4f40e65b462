# A file without an option.
zerotrain ds.json
