# A source that does not exist.
ckpt convert nowhere m.safetensors; echo $?; ls
