# SPDX-License-Identifier: Apache-2.0
# A file without an option.
zerotrain ds.json
