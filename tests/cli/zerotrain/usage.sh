# Without anything to do: how it is used, and not a success.
zerotrain
