# SPDX-License-Identifier: Apache-2.0
# Every option of every command, alone and beside each other option: it changes what is printed, written or said, or a warning
# names it.  Options that only allow something, set a limit or demand what is so anyway are listed here with the reason.
cat >rules.json <<'END'
{"parameter_with_row_parallelism_patterns": [".*nomatch"]}
END
echo 'nomatch other' >rename
printf 'others stay\nnomatch other\n' >a.map
ckpt manifest -q "$FIXTURES"/z1_bf16_w2_fp32acc/ckpt -o zero.json
python3 - "$FIXTURES" <<'END'
import os, re, shutil, subprocess, sys

fixtures = sys.argv[1]
zero, slices, model = (fixtures + "/" + x for x in ("z1_bf16_w2_fp32acc/ckpt", "tp2_z1_w4/ckpt", "hf_bert_sharded"))
values = {"include": "*nomatch*", "exclude": "*nomatch*", "slice-rules": "rules.json", "rename": "rename", "map": "a.map", "config": "rules.json", "size": "a=1",
          "vocab-size": "100", "vocab-tensor": "*word_emb*", "tie": "nomatch",
          "order": "stored",
          "dtype": "bf16", "range": "0:3", "depth": "1", "max-items": "2", "max-shard-size": "1K", "to-tag": "other",
          "sub-group-size": "100", "deepspeed-version": "0.16.4", "world": "3", "stage": "2", "num-gpus": "2",
          "num-nodes": "2", "gpus": "2", "nodes": "2", "link": "10", "node-link": "10", "accumulation": "4", "comm-dtype": "fp32",
          "seq-length": "8", "micro-batch": "2", "layers": "4", "hidden": "16", "heads": "4", "tensor-parallel": "2", "pipeline": "2",
          "interleave": "2", "svg": "out",
          "hostfile": "rules.json", "imatrix": "rules.json", "manifest": "zero.json", "key": "rules.json", "attest": "said.json", "cert": "rules.json", "signature": "rules.json", "quantize": "fp8-channel", "quantize-skip": "*query*", "adapter": "adapter", "made-from": model, "method": "linear", "base": model, "density": "0.5", "lambda": "2", "t": "0.5", "seed": "3", "weights": "ema", "last": "2", "ep-size": "2", "pipeline-model-parallel-size": "2", "expert-model-parallel-size": "2",
          "adapter-config": "rules.json", "adapter-name": "default", "lora-names": "kohya", "largest-layer": "1K", "to": "universal"}
# Permissions, limits and means; --tag of a checkpoint with one tag says what is so.
always = {"force", "allow-overflow", "no-sandbox", "strict", "require-crc", "memory", "jobs", "no-fsync", "tol", "ignore-dtype", "moments",
          "tag", "tag-a", "tag-b", "help", "version"}
# Demands that are met: (command, option, beside which option, or None: beside any).
met = {
    ("ls", "bytes", "json"),        # JSON has exact sizes
    ("info", "files", None),        # few are all listed, and JSON lists all
    ("cat", "all", None),           # a short tensor is printed whole, statistics are of all
    ("cat", "no-crc", None),        # reads less and prints the same
    ("cat", "quiet", "raw"),        # no heading
    ("tree", "max-items", "depth"), # nothing is that deep
    ("tree", "max-items", None), ("tree", "depth", None),
    ("verify", "quiet", "json"), ("verify", "keep-slices", "quiet"), ("verify", "slice-rules", "quiet"),
    ("verify", "ignore-copies", "quiet"), ("verify", "as-file", "quiet"),
    ("verify", "manifest", "quiet"), # no error is found, with or without
    ("diff", "config", "map"), # this map has no sizes
    ("diff", "with-optimizer", "quiet"),                                  # no difference is found
    ("doctor", "deep", None), ("doctor", "fix-latest", None), ("doctor", "all", None), # nothing is wrong
    ("mem", "stage", None),         # without a layer there is stage 2 only
    ("mem", "comm-dtype", "dtype"), # gradients are in fp32 already
    ("convert", "with-optimizer", None), ("convert", "keep-slices", None), # training state is written whole
    ("convert", "exclude-frozen", "no-frozen"), ("convert", "no-side-files", None),
    ("convert", "ignore-copies", "dry-run"), ("reshard", "ignore-copies", "dry-run"), # nothing is compared
    ("convert", "ignore-copies", "quiet"), ("reshard", "ignore-copies", "quiet"), ("cat", "ignore-copies", None),
}

def files(folder):
    out = [os.path.getsize(folder)] if os.path.isfile(folder) else []
    for at, _, names in os.walk(folder):
        for name in sorted(names):
            with open(os.path.join(at, name), "rb") as f:
                out.append((os.path.join(at, name), hash(f.read())))
    return sorted(out)

def run(words):
    if os.path.isfile("out"):
        os.remove("out")
    shutil.rmtree("out", ignore_errors=True)
    p = subprocess.run(["ckpt"] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    text = re.sub(rb' in [0-9.]+ m?s \([^)]*\)|"seconds": [0-9.e+-]+|"bytes_free": [0-9]+|[0-9.]+ .B free', b"",
                  p.stdout + p.stderr)
    return p.returncode, text, files("out")

def check(verb, operands, fixed=(), beside=None):
    help_text = subprocess.run(["ckpt", verb, "--help"], stdout=subprocess.PIPE).stdout.decode()
    options = re.findall(r"^  (?:-\w,|   ) --([\w-]+)(?: ([A-Z:]+))?", help_text, re.M)
    # an option whose value is not known would end the test early
    for n, v in options:
        if v and n not in values and n not in always and "--" + n not in fixed:
            print(verb, "--" + n, v, "has no value in this test")
    options = [(n, v) for n, v in options if not v or n in values]
    words = {n: ["--" + n] + ([values[n]] if v else []) for n, v in options if n not in always and "--" + n not in fixed}
    count = 0
    for first in [None] + [n for n in words if beside is None or n in beside]:
        base = [verb] + list(fixed) + (words[first] if first else []) + list(operands)
        before = run(base)
        if first and before[0] > 1:
            continue
        for n in words:
            if n == first or (verb, n, first) in met or (verb, n, None) in met:
                continue
            count += 1
            if run(base + words[n]) == before:
                print(verb, *fixed, "--" + n, "is passed over" + (", with --" + first if first else ""), *operands[:1])
    return count

n = 0
for verb in ("ls", "info", "tree", "verify"):
    n += check(verb, [zero]) + check(verb, [slices], beside=()) + check(verb, [model], beside=())
n += check("cat", [zero, "emb.weight"]) + check("diff", [zero, zero]) + check("doctor", [zero]) + check("formats", [])
values["dtype"] = "fp32"  # bf16 is what is meant
n += check("mem", [], ("--params", "1M"))
values["comm-dtype"] = "bf16"
n += check("mem", [], ("--params", "1M", "--gpus", "4", "--nodes", "2", "--dtype", "fp32"), ())
values["comm-dtype"] = "fp32"
n += check("mem", [], ("--params", "1M", "--gpus", "4", "--nodes", "2", "--seq-length", "8", "--layers", "4", "--hidden", "16", "--heads", "4"), ())
values["dtype"] = "bf16"
n += check("convert", [slices, "out"], ("--no-fsync", "--to", "safetensors"), ("quiet",))
n += check("convert", [model, "out"], ("--no-fsync", "--to", "hf-bin"), ("dry-run", "json"))
values["dtype"] = "fp32"  # masters are already, so the 16-bit copies
n += check("convert", [slices, "out"], ("--no-fsync", "--to", "universal"), ("dry-run",))
n += check("convert", [slices, "out"], ("--no-fsync", "--to", "zero"), ())
values["dtype"] = "fp16"
n += check("reshard", [zero, "out"], ("--no-fsync",), ("dry-run", "quiet"))
print("hundreds of cases" if n > 300 else n)
END
ckpt doctor -q --jobs 2 "$FIXTURES"/z1_bf16_w2_fp32acc/ckpt
zero_to_fp32 -q -d "$FIXTURES"/z1_bf16_w2_fp32acc/ckpt fp32
ds_to_universal -q --inject_missing_state --slice_rules rules.json --input_folder nothing --output_folder here/u
ckpt mem --stage 2 --params 1M --largest-layer 1K --json >mem.json
ckpt verify --as-file --keep-slices "$FIXTURES"/z1_bf16_w2_fp32acc/ckpt >verify.txt
ckpt reshard -q --strict --sub-group-size 1000 "$FIXTURES"/z1_bf16_w2_fp32acc/ckpt strict; echo $?; ls
