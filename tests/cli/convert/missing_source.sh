# SPDX-License-Identifier: Apache-2.0
# A source that does not exist.
ckpt convert nowhere m.safetensors; echo $?; ls
