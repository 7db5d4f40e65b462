# SPDX-License-Identifier: Apache-2.0
# The beginning of an option is not the option.
zerotrain --deepspeed_conf ds.json
