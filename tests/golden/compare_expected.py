#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare what golden_map reads from checkpoint fixtures with what their expected.json says.

    compare_expected.py GOLDEN_MAP SHARED [FIXTURE ...]

Every tag of every DeepSpeed fixture: names, order, dtype, shape and SHA-256 of the consolidated weights, of the optimizer
state, the step counts, and every 16-bit copy; then the cases of the corpus of bad folders.  compare_grid.py does the same for
tensor-parallel, pipeline and expert-parallel checkpoints.  Needs Python only; exit status 1 on any difference.
"""
import hashlib
import json
import os
import struct
import subprocess
import sys

DTYPE = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
         "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}
READ = ("z0_", "z1_", "z2_", "z3_", "uni_", "old0", "hf_trainer_")


def run(golden, path, *args):
    """Exit status, tensors by name in order, and the '#' lines."""
    p = subprocess.run([golden, *args, path], capture_output=True, text=True, check=False)
    tensors, notes = {}, []
    for line in p.stdout.splitlines():
        if line.startswith("#"):
            notes.append(line)
            continue
        sha, dtype, role, owner, shape, name = line.split("\t", 5)
        tensors[name] = {"dtype": dtype, "shape": [int(n) for n in shape.split(",") if n], "sha256": sha,
                         "role": role, "owner": None if owner == "-" else owner}
    return p.returncode, tensors, notes, p.stderr.strip()


def differs(have, want):
    dtype = DTYPE.get(want["dtype"], want["dtype"])
    return (have["dtype"], have["shape"], have["sha256"]) != (dtype, list(want["shape"]), want["sha256"])


def check_weights(have, expected):
    """Problems with the consolidated weights."""
    want = expected["weights"]
    out = [f"{n}: {have[n]} instead of {want[n]}" for n in want if n in have and differs(have[n], want[n])]
    out += [f"{n}: not read" for n in want if n not in have]
    extra = [n for n in have if n not in want]
    # Values taken from a running engine list parameters alone: buffers and tied names may come on top.
    if "live engine" in expected["weights_source"] and "zero_to_fp32" not in expected["weights_source"]:
        tied, buffers = expected.get("tied") or {}, expected.get("buffers") or {}
        extra = [n for n in extra if have[n]["owner"] != tied.get(n, "") and
                 not (have[n]["role"] == "buffer" and n in buffers)]
    out += [f"{n}: read, but not expected" for n in extra]
    if [n for n in have if n in want] != list(want):
        out.append("the order differs")
    return out


def check_state(have, expected):
    """Problems with the optimizer state."""
    out = []
    for kind, params in (expected["optimizer"].get("state") or {}).items():
        for name, want in params.items():
            got = have.get(f"{kind}/{name}")
            if got is None:
                out.append(f"{kind}/{name}: not read")
            elif differs(got, want):
                out.append(f"{kind}/{name}: {got} instead of {want}")
    return out


def check_steps(have, expected):
    """Problems with the step counts: one F32 without axes for each parameter that has moments, and for no other."""
    step = expected["optimizer"].get("step") or []
    values = [step] if isinstance(step, (int, float)) else step["state"] or step["group"]
    want = {f"step/{n}" for params in expected["optimizer"]["state"].values() for n in params} if values else set()
    got = {n for n in have if n.startswith("step/")}
    out = [f"{n}: not read" for n in want - got] + [f"{n}: read, but not expected" for n in got - want]
    right = [hashlib.sha256(struct.pack("<f", v)).hexdigest() for v in values]
    out += [f"{n}: {have[n]} instead of one of {values}" for n in want & got
            if have[n]["sha256"] not in right or have[n]["dtype"] != "F32" or have[n]["shape"]]
    return out


def check_groups(notes, expected):
    """Problems with the training state: the optimizer's groups, their parameters in the order it was given them."""
    groups = expected["optimizer"].get("param_groups")
    if not groups or "params" not in groups[0]:
        return []
    empty = {n for n, w in expected["weights"].items() if 0 in w["shape"]}  # kept among the frozen ones
    want = [[n for n in g["params"] if n not in empty] for g in groups]
    have = [[] for _ in groups]
    for line in notes:
        if line.startswith("#param\t0\t"):
            have[int(line.split("\t")[2])].append(line.split("\t", 4)[4])
    return [f"group {i}: {h} instead of {w}" for i, (h, w) in enumerate(zip(have, want)) if h != w]


def check_fixture(golden, folder, report):
    """One fixture, all its tags."""
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    path = os.path.join(folder, "ckpt")
    name = os.path.basename(folder)
    tags = {**{t: e for t, e in (expected.get("other_tags") or {}).items()}}
    if expected.get("tag"):
        tags[expected["tag"]] = expected
    for tag, one in tags.items() or [(None, expected)]:
        one = {**expected, **one}
        status, have, notes, text = run(golden, path, "-o", *(["-t", tag] if tag else []))
        problems = [f"status {status}: {text}"] if status else []
        problems += [n for n in notes if n.startswith("#twin") or n.startswith("#finding\t1") and "left out" not in n]
        state = {n: t for n, t in have.items() if t["role"] == "state"}
        weights = {n: t for n, t in have.items() if t["role"] != "state"}
        problems += check_weights(weights, one) + check_state(state, one) + check_steps(state, one)
        problems += check_groups(notes, one)
        report(f"{name} {tag or ''}".strip(), problems)


def check_bad(golden, shared, report):
    """The folders of the corpus: accepted with the right values, or refused with the right status."""
    bad = os.path.join(shared, "bad")
    with open(os.path.join(bad, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    for case in manifest["cases"]:
        if case["kind"] != "ds" or case.get("op") != "consolidate":
            continue
        path = os.path.join(bad, case["path"], case.get("root") or "")
        status, have, notes, text = run(golden, path)
        problems = []
        if case["expect"] == "accept":
            problems += [f"status {status}: {text}"] if status else []
            problems += [f"{n}: wrong" for n, w in case["tensors"].items() if n not in have or differs(have[n], w)]
        else:
            want = manifest["exit_by_class"][case["cls"]]
            # A copy that differs is what the conversion refuses: golden_map says so with status 1.
            seen = 5 if status == 1 and any(n.startswith("#twin") for n in notes) else status
            problems += [] if seen == want and (text or notes) else [f"status {status}, expected {want}: {text}"]
        report(case["id"], problems)


def main():
    golden, shared, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    done, failed = [], []

    def report(name, problems):
        done.append(name)
        for text in problems:
            print(f"{name}: {text}")
        if problems:
            failed.append(name)

    fixtures = os.path.join(shared, "fixtures")
    for name in sorted(os.listdir(fixtures)):
        if name.startswith(READ) and 'fsdp' not in name and (not only or name in only):
            check_fixture(golden, os.path.join(fixtures, name), report)
    if not only:
        check_bad(golden, shared, report)
    print(f"expected: {len(done) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
