# SPDX-License-Identifier: Apache-2.0
# Event files, csv_monitor's files and a picture: names, places and numbers.
. "$FIXTURES"/../cli/zerotrain_help.inc
echo '{"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "tensorboard": {"enabled": true, "output_path": "logs", "job_name": "x"},
 "csv_monitor": {"enabled": true, "output_path": "logs/", "job_name": "y"}}' >ds.json
train --quiet --max-steps 2 --tensorboard board --plot loss.svg --metrics m.jsonl --save run
train --quiet --max-steps 3 --tensorboard board --load run
find board logs -type f | sed 's/tfevents.*/tfevents/' | sort
cut -d, -f1 logs/y/*loss.csv
cat logs/y/*lr.csv | tr -d '\r'
python3 - <<'EOF'
import glob, json, re, struct
def crc(b):
    c = 0xffffffff
    for x in b:
        c ^= x
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff
found = []
for path in sorted(glob.glob('board/*'), key=lambda p: len(open(p, 'rb').read()), reverse=True):
    b, at = open(path, 'rb').read(), 0
    while at < len(b):
        n, = struct.unpack_from('<Q', b, at)
        message = b[at + 12:at + 12 + n]
        assert struct.unpack_from('<I', b, at + 8)[0] == crc(b[at:at + 8])
        assert struct.unpack_from('<I', b, at + 12 + n)[0] == crc(message)
        at += 16 + n
        tag = re.search(rb'Train/Samples/\w+|brain.Event:2', message)[0].decode()
        found.append((tag, message[10] if message[9] == 16 else None, struct.unpack('<f', message[-4:])[0]))
print([x[:2] for x in found])
loss = [json.loads(x)['loss'] for x in open('m.jsonl')]
told = [x[2] for x in found if x[0].endswith('train_loss')]
print(len(told), all(abs(a - b) < 1e-6 for a, b in zip(loss, told)))
import xml.dom.minidom
svg = xml.dom.minidom.parse('loss.svg')
print(svg.documentElement.tagName, [len(x.getAttribute('points').split()) for x in svg.getElementsByTagName('polyline')],
      svg.getElementsByTagName('title')[0].firstChild.data)
EOF
ls
echo in the way >file
train --max-steps 1 --quiet --tensorboard file
echo "exit status $?"
train --max-steps 1 --quiet --plot nowhere/x.svg
echo "exit status $?"
