# SPDX-License-Identifier: Apache-2.0
# A line that names no slots, a host twice, no slot at all, a filter for a host that there is not.
for line in 'a slots=x' 'a' 'a slots=1\na slots=2' 'a slots=0'; do
    printf "$line\n" >hosts
    zerotrain --hostfile hosts --model m
    echo "exit status $?"
done
echo 'a slots=2' >hosts
zerotrain --hostfile hosts --include b
echo "exit status $?"
zerotrain --hostfile hosts --include a:7
echo "exit status $?"
zerotrain --hostfile hosts --include a --exclude a
