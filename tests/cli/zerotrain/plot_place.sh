# SPDX-License-Identifier: Apache-2.0
# The picture of --plot takes the place of a file: pipes and links are never replaced, with --force neither.
. "$FIXTURES"/../cli/zerotrain_help.inc
run() {
    zerotrain --deepspeed_config ds.json --model "$S" --data "$S"/train.tsv --threads 1 --quiet --max-steps 1 "$@"
    echo "exit status $?"
}
mkfifo pipe
echo old >picture.svg
ln -s picture.svg link
ln -s pipe to_pipe
for place in pipe to_pipe link s3://bucket/x.svg; do
    run --plot $place --force
done
[ -p pipe ] && [ -L link ] && [ -L to_pipe ] && cat picture.svg && ls
run --plot picture.svg --force
head -c 4 picture.svg
