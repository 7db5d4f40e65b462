# SPDX-License-Identifier: Apache-2.0
# A reader that left is no message: the program ends as SIGPIPE ends others.
mkfifo pipe gone
(exec >pipe; read -r _ <gone; ckpt ls "$FIXTURES"/hf_bert_sharded; echo $? >status) &
# a reader that opens and goes away before anything is written to it
exec 3<pipe
exec 3<&-
echo >gone
wait
cat status
