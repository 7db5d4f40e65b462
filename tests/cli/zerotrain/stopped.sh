# SIGTERM: the run saves after the update in which it was, and ends well.
. "$FIXTURES"/../cli/zerotrain_help.inc
zerotrain --quiet --deepspeed_config ds.json --model "$S" --data "$S"/train.tsv --threads 1 --max-steps 100000 --metrics m.jsonl --save run &
while [ ! -s m.jsonl ]; do
    sleep 0.05
    kill -0 $! || exit 9
done
kill -TERM $!
wait $!
echo "exit status $?"
ckpt verify -q run && [ "global_step$(wc -l <m.jsonl | tr -d ' ')" = "$(cat run/latest)" ] && echo "saved after the last line of metrics"
