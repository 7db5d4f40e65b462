# SPDX-License-Identifier: Apache-2.0
# A folder that does not exist.
zero_to_fp32 nowhere out; echo $?; ls
