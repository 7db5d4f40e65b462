# SPDX-License-Identifier: Apache-2.0
# The version, by every name.
ckpt --version; ckpt -V; ckpt version | head -n 1; ckpt ls --version; zero_to_fp32 --version
