#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stage 3 with NVMe offload: move a real checkpoint's flat groups into swap files and read it again.

    ds_swap.py GOLDEN_MAP FIXTURES

DeepSpeed leaves groups of 1 MiB and more in <tag>/offloaded_tensors/rankNN/<ds_id>.tensor.swp and an empty tensor with
the attribute ds_id in the optimizer file.  Small real checkpoints are below that size, so the move is made
here, the way the swapper names and pads its files.  All tensors must come out as before; a short or a missing
swap file must be refused.  Needs torch and deepspeed; exit status 77 without them.
"""
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
    import deepspeed  # noqa: F401  the pickles name its classes
except ImportError:
    sys.exit(77)

ALIGN = 4096  # bytes


def read(golden, path, *args):
    p = subprocess.run([golden, "-o", *args, path], capture_output=True, text=True, check=False)
    return p.returncode, [x for x in p.stdout.splitlines() if not x.startswith("#")], p.stderr


def swap_out(folder, rank, tensor):
    """Write a tensor where the swapper does; the empty tensor that stays behind."""
    data = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{tensor.ds_id}.tensor.swp"), "wb") as f:
        f.write(data + b"\xff" * (-len(data) % ALIGN))
    empty = torch.empty(0, dtype=tensor.dtype)
    empty.ds_id = tensor.ds_id
    return empty


def swap_rank(tag, rank):
    path = next(os.path.join(tag, n) for n in os.listdir(tag) if f"rank_{rank}_" in n and n.endswith("optim_states.pt"))
    folder = os.path.join(tag, "offloaded_tensors", f"rank{rank:02d}")
    root = torch.load(path, map_location="cpu", weights_only=False)
    inner = root["optimizer_state_dict"]
    for i, flat in enumerate(inner["fp32_flat_groups"]):
        state = inner["optimizer_state_dict"]["state"].get(i, {})
        name = flat.ds_id
        for key, value in state.items():
            if torch.is_tensor(value) and value.dim() == 1:
                value.ds_id = f"{key}-{name}"
                state[key] = swap_out(folder, rank, value)
        inner["fp32_flat_groups"][i] = swap_out(folder, rank, flat)
    torch.save(root, path)
    return folder


def check(golden, fixture, world):
    tmp = tempfile.mkdtemp()
    try:
        run = os.path.join(tmp, "ckpt")
        shutil.copytree(os.path.join(fixture, "ckpt"), run)
        tag = os.path.join(run, open(os.path.join(run, "latest"), encoding="utf-8").read().strip())
        before = read(golden, run)
        folders = [swap_rank(tag, r) for r in range(world)]
        after = read(golden, run)
        assert before[0] == 0 and before[1], before[2]
        assert after[0] == 0, after[2]
        assert before[1] == after[1], "other values than before"
        victim = os.path.join(folders[-1], sorted(os.listdir(folders[-1]))[0])
        with open(victim, "r+b") as f:
            f.truncate(8)
        status, _, text = read(golden, run)
        assert status == 5 and "8 bytes" in text, text
        os.unlink(victim)
        status, _, text = read(golden, run)
        assert status == 5 and ".tensor.swp" in text, text
    finally:
        shutil.rmtree(tmp)


def main():
    golden, fixtures = sys.argv[1], sys.argv[2]
    done = 0
    for name, world in (("z3_bf16_w2_nvme", 2), ("z3_bf16_w5_odd", 5), ("z3_fp16_w3_subgroups", 3)):
        folder = os.path.join(fixtures, name)
        if os.path.isdir(folder):
            check(golden, folder, world)
            done += 1
    print(f"{done} checkpoints read from swap files")
    return 0 if done else 77


if __name__ == "__main__":
    sys.exit(main())
