# SPDX-License-Identifier: Apache-2.0
# SIGTERM: the run saves after the update in which it was, and ends well, whatever it was doing.
. "$FIXTURES"/../cli/zerotrain_help.inc
for i in 1 2 3 4 5 6 7 8; do
    rm -rf run m.jsonl
    zerotrain --quiet --deepspeed_config ds.json --model "$S" --data "$S"/train.tsv --threads 1 --max-steps 100000 --metrics m.jsonl --save run &
    while [ ! -s m.jsonl ]; do
        sleep 0.05
        kill -0 $! || exit 9
    done
    kill -TERM $!
    wait $! || echo "exit status $?"
    ckpt verify -q run && [ "global_step$(wc -l <m.jsonl | tr -d ' ')" = "$(cat run/latest)" ] || echo "not saved after the last line of metrics"
done
echo "stopped $i times"
