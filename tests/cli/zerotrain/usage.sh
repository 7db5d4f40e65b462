# SPDX-License-Identifier: Apache-2.0
# Without anything to do: how it is used, and not a success.
zerotrain
