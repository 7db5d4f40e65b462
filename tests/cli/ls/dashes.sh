# SPDX-License-Identifier: Apache-2.0
# After --, a path may look like an option.
ckpt ls -- --json
