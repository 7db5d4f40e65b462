#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare what golden_map reads from tensor-parallel, pipeline and expert-parallel checkpoints with expected.json.

    compare_grid.py GOLDEN_MAP SHARED [FIXTURE ...]

Of each fixture: with slices kept apart, every model-parallel rank's weights, moments and 16-bit copies against the
`by_rank` tables; joined, every tensor and moment against the universal checkpoint that DeepSpeed made of it, or,
where ranks hold whole tensors (pipeline stages, experts), against the same tables; the order of parameters in the
training state; and the refusal of slices that nothing says how to join.  Exit status 1 on any difference.
"""
import json
import os
import re
import sys

from compare_expected import differs, run

FIXTURES = ("tp2_z0_w2", "tp2_z1_w2", "tp2_z1_w4", "autotp2_z1_w2", "pipe2_z0_w2", "pipe2_z1_w4", "moe_ep1_z1_w2",
            "moe_ep2_z0_w2", "moe_ep2_z2_w2")
EXPERT = re.compile(r"(\.deepspeed_experts\.)(\d+)(\.)")
# The rules that the writer of the tp2 fixtures saved with ZeRO; its run without ZeRO saved none.
TP2_RULES = {"universal_checkpoint_version": 0.2, "original_vocab_size": 29, "padded_vocab_size": 32,
             "vocabulary_parameter_patterns": ["emb\\.weight"],
             "parameter_with_row_parallelism_patterns": ["proj\\.weight", "down\\.weight"],
             "tp_replicated_parameter_patterns": ["ln\\.(weight|bias)", "proj\\.bias"],
             "parameter_with_2_sub_params_cat_dim_0": ["gu\\.weight"]}


class Report:
    """Counts what was compared, and prints what differs."""

    def __init__(self):
        self.compared = self.failed = 0

    def tensor(self, where, have, want):
        self.compared += 1
        if have is None:
            self.problem(f"{where}: not read")
        elif differs(have, want):
            self.problem(f"{where}: {have} instead of {want}")

    def check(self, where, holds, text):
        self.compared += 1
        if not holds:
            self.problem(f"{where}: {text}")

    def problem(self, text):
        print(text)
        self.failed += 1


def rank_tables(expected):
    """The tables of all ranks, by number."""
    return [t for _, t in sorted(expected["by_rank"].items(), key=lambda kv: int(kv[0].rsplit("_", 1)[1]))]


def opened(golden, path, where, report, *args):
    status, have, notes, text = run(golden, path, "-o", *args)
    report.check(where, status == 0, f"status {status}: {text}")
    for n in notes:
        if n.startswith("#twin") or n.startswith("#finding\t1"):
            report.problem(f"{where}: {n}")
    return have, notes


def state_params(notes):
    """Names of the parameters of each state: {state: [(group, lane, name)]}."""
    out = {}
    for n in notes:
        if n.startswith("#param\t"):
            _, state, group, lane, name = n.split("\t", 4)
            out.setdefault(int(state), []).append((int(group), int(lane), name))
    return out


def compare_table(report, where, have, table, rename):
    """One rank's weights and moments; what was compared, by name."""
    seen = set()
    for name, want in table["weights"].items():
        report.tensor(f"{where} {name}", have.get(rename(name)), want)
        seen.add(rename(name))
    for kind, params in table["state"].items():
        for name, want in params.items():
            full = rename(name, kind)
            report.tensor(f"{where} {kind}/{name}", have.get(full), want)
            seen.add(full)
    return seen


def nothing_else(report, where, have, seen):
    """No tensor beside those that were compared, but for step counts."""
    for name in have:
        if name not in seen and not re.search(r"(^|/)step/", name):
            report.problem(f"{where}: {name} was read, but is not expected")


def check_slices(golden, path, expected, name, report):
    """Model-parallel ranks apart."""
    have, notes = opened(golden, path, name, report, "-k")
    seen = set()
    for rank, table in enumerate(rank_tables(expected)):
        def rename(param, kind=None, rank=rank):
            param = tied(name, param)
            return f"mp_rank_{rank:02d}/" + (f"{kind}/{param}" if kind else param)
        seen |= compare_table(report, f"{name} rank {rank}", have, table, rename)
    nothing_else(report, name, have, seen)
    states = state_params(notes)
    report.check(name, len(states) == len(expected["by_rank"]), f"{len(states)} training states")
    for rank, params in states.items():
        report.check(name, all(p.startswith(f"mp_rank_{rank:02d}/") for _, _, p in params), f"state {rank}: {params}")


def tied(fixture, name):
    """Without ZeRO no file tells a tied layer's key: its parameters go by their layer's number."""
    return re.sub(r"^tied_modules\.embed\.", "0.", name) if fixture == "pipe2_z0_w2" else name


def check_stages(golden, path, expected, name, report):
    """Pipeline stages as one model."""
    have, notes = opened(golden, path, name, report)
    seen = set()
    for rank, table in enumerate(rank_tables(expected)):
        def rename(param, kind=None):
            param = tied(name, param)
            return f"{kind}/{param}" if kind else param
        seen |= compare_table(report, f"{name} stage {rank}", have, table, rename)
    nothing_else(report, name, have, seen)
    order = []
    for table in rank_tables(expected):
        order += [tied(name, p) for p in table["weights"] if tied(name, p) not in order]
    check_order(report, name, notes, [(0, 0, p) for p in order])


def check_order(report, name, notes, want):
    got = state_params(notes)
    report.check(name, list(got) == [0] and got[0] == want, f"training states {got}, expected {want}")


def check_experts(golden, path, expected, name, report):
    """All experts under their global numbers."""
    tables = rank_tables(expected)
    have, notes = opened(golden, path, name, report)
    local = 1 + max(int(m.group(2)) for m in map(EXPERT.search, tables[0]["weights"]) if m)
    seen, order = set(), []
    for rank, table in enumerate(tables):
        def rename(param, kind=None, rank=rank):
            full = EXPERT.sub(lambda m: f"{m.group(1)}{rank * local + int(m.group(2))}{m.group(3)}", param)
            return f"{kind}/{full}" if kind else full
        seen |= compare_table(report, f"{name} ep rank {rank}", have, table, rename)
        order += [(int(bool(EXPERT.search(p))), rank, rename(p)) for p in table["weights"]
                  if rank == 0 or EXPERT.search(p)]
    nothing_else(report, name, have, seen)
    # The optimizer's own order: everything but experts, then those of each lane.
    check_order(report, name, notes, sorted(order, key=lambda p: p[:2]))


def check_joined(golden, path, expected, name, report):
    """Tensor-parallel slices joined, as DeepSpeed's universal conversion joins them."""
    have, notes = opened(golden, path, name, report)
    seen = set()
    for param, files in expected["universal"]["files"].items():
        for key, full in (("fp32", param), ("exp_avg", f"exp_avg/{param}"), ("exp_avg_sq", f"exp_avg_sq/{param}")):
            report.tensor(f"{name} {full}", have.get(full), files[key])
            seen.add(full)
        report.check(name, f"step/{param}" in have and not have[f"step/{param}"]["shape"], f"step/{param} is missing")
    nothing_else(report, name, have, seen)
    groups = expected["optimizer"]["param_groups"]
    check_order(report, name, notes, [(g, 0, p) for g, group in enumerate(groups) for p in group["params"]])


def check_without_rules(golden, path, expected, name, report):
    """Refused; joined by rules from outside."""
    status, _, _, text = run(golden, path)
    report.check(name, status == 3 and "--slice-rules" in text, f"status {status}: {text}")
    have, _ = opened(golden, path, name, report, "-r", json.dumps(TP2_RULES))
    shapes = {"emb.weight": [29, 8], "fc.weight": [12, 8], "fc.bias": [12], "proj.weight": [8, 12], "gu.weight": [20, 8],
              "down.weight": [8, 10], "ln.weight": [8], "ln.bias": [8], "proj.bias": [8]}
    for param in rank_tables(expected)[0]["weights"]:
        for full in (param, f"exp_avg/{param}", f"exp_avg_sq/{param}"):
            got = have.get(full)
            report.check(name, got is not None and got["shape"] == shapes[param], f"{full}: {got}")
    first = rank_tables(expected)[0]["weights"]
    for param in ("ln.weight", "ln.bias", "proj.bias"):
        report.tensor(f"{name} {param}", have.get(param), first[param])


def main():
    golden, shared, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    report = Report()
    names = [n for n in FIXTURES if not only or n in only]

    for name in names:
        folder = os.path.join(shared, "fixtures", name)
        path = os.path.join(folder, "ckpt")
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
            expected = json.load(f)
        if name.startswith("moe_"):
            check_experts(golden, path, expected, name, report)
            continue
        check_slices(golden, path, expected, name, report)
        if name.startswith("pipe"):
            check_stages(golden, path, expected, name, report)
        elif "universal" in expected:
            check_joined(golden, path, expected, name, report)
        else:
            check_without_rules(golden, path, expected, name, report)
    print(f"grids of {len(names)} checkpoints: {report.compared - report.failed} passed, {report.failed} failed")
    return 1 if report.failed or not report.compared else 0


if __name__ == "__main__":
    sys.exit(main())
