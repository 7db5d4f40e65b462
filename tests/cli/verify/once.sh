# SPDX-License-Identifier: Apache-2.0
# Every byte of a checkpoint is read once: its values and its checksums come from the same bytes.  The kernel counts what the
# program has read; headers may be looked at again.
python3 - <<'END'
import array, json, os, random, struct, subprocess, zipfile

def count():
    """Bytes read by this process and the children it has waited for."""
    with open("/proc/self/io") as f:
        return int(f.readline().split()[1])

def run(*words):
    return subprocess.run(("ckpt",) + words, check=True, stdout=subprocess.PIPE).stdout

def size(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files)

def verify(name, path):
    try:
        before = count()
        d = json.loads(run("verify", "--json", "--jobs", "1", path))
        n = count() - before
    except OSError:  # no such count here: the program's own has to do
        n = d["report"]["bytes_read"]
    whole, told = size(path), d["report"]["bytes_read"]
    # the program, its libraries, and headers
    print(name, d["ok"], "records", d["report"]["records_checked"] > 0,
          "read once" if whole * 0.9 < n < whole * 1.05 + 6e5 else "read %d of %d bytes" % (n, whole),
          "told" if whole * 0.9 < told < whole * 1.1 else "told %d of %d bytes" % (told, whole))

rng = random.Random(1)
os.mkdir("model")
tensors, at = {}, 0
for i, shape in enumerate([[1024, 1500], [512, 1000], [2048]]):
    n = 4
    for s in shape:
        n *= s
    tensors["layer.%d.weight" % i] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + n]}
    at += n
head = json.dumps(tensors).encode()
with open("model/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    block = array.array("f", (rng.gauss(0, 1) for _ in range(65536))).tobytes()
    f.write((block * (at // len(block) + 1))[:at])
run("convert", "-q", "--to", "torch", "model/model.safetensors", "one.pt")
verify("torch", "one.pt")
with zipfile.ZipFile("one.pt") as old, zipfile.ZipFile("deflated.pt", "w", zipfile.ZIP_DEFLATED) as new:
    for name in old.namelist():
        new.writestr(name, old.read(name))
    top = name.split("/")[0]
verify("deflated", "deflated.pt")
with zipfile.ZipFile("deflated.pt", "a") as more:
    more.writestr(top + "/unused", rng.randbytes(2000000))
verify("unused record", "deflated.pt")
for stage in "123":
    run("reshard", "-q", "--order", "stored", "--dtype", "bf16", "-w", "3", "-s", stage,
        "model", "zero" + stage)
    verify("stage " + stage, "zero" + stage)
END
