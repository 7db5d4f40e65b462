#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds for the targets whose input is more than one plain file.

    seeds.py TARGET CORPUS [PROGRAMS]     from the root of the sources

PROGRAMS is the folder of ckpt: it writes the universal checkpoints.
"""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

GOLDEN = 'tests/fixtures/golden/'
SENTIMENT = 'tests/fixtures/sentiment/'


def golden(name):
    with open(GOLDEN + name) as f:
        return json.load(f)


def text(value):
    return json.dumps(value, ensure_ascii=False).encode()


def configs():
    """Every recorded configuration of DeepSpeed and of the Trainer."""
    for name in ('config_cases.json', 'hf_auto.json'):
        for case in golden(name)['cases']:
            yield text(case['ds_config'])
    with open(SENTIMENT + 'ds_config.json', 'rb') as f:
        yield f.read()
    yield b"// remark\ntrain_batch_size: 8 # more\nfp16: {enabled: true,}\nname: '''\n  a\n  b\n  '''\n"


def models():
    for name in ('models.json', '../models/models.json', '../models_t5/models.json'):
        for m in golden(name)['models']:
            yield text(dict(m['config'], architectures=[m['cls']]))
    for name in ('run_model_bert.json', 'run_model_gpt2.json', 'run_model_llama.json', 't5/run_model_t5.json', 't5/run_model_t5_gated.json'):
        with open(GOLDEN + name, 'rb') as f:
            yield f.read()


def hosts():
    for c in golden('launcher.json')['cases']:
        yield b'\0'.join([c['hostfile'].encode(), c['include'].encode(), c['exclude'].encode(),
                          struct.pack('bb', c['num_nodes'], c['num_gpus'])])


def safetensors(tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, body = {}, b''
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    head += b' ' * (-len(head) % 8)
    return struct.pack('<Q', len(head)) + head + body


def npy(shape, descr, data):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode()
    head += b' ' * (-(len(head) + 11) % 64) + b'\n'
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head + data


def data():
    """The kind, the options, the file."""
    ids = struct.pack('<24q', *[i % 200 for i in range(24)])
    flat = {'input_ids': ('I64', [3, 8], ids), 'attention_mask': ('I64', [3, 8], struct.pack('<24q', *[1] * 24)),
            'labels': ('I64', [3, 8], ids)}
    classes = {'input_ids': ('I32', [3, 8], ids[:96]), 'labels': ('I64', [3], struct.pack('<3q', 0, 1, 2)),
               'token_type_ids': ('U8', [3, 8], bytes(24))}
    replay = {'in/input_ids': ('I64', [3, 2, 1, 4], ids), 'in/labels': ('I64', [3, 2, 1, 4], ids)}
    with open(SENTIMENT + 'train.tsv', 'rb') as f:
        tsv = b''.join(f.readlines()[:8])
    rows = [('1', 'ab a!'), ('0', 'b, "w"'), ('1', 'abba')]
    files = [
        (0, struct.pack('<40H', *range(40))), (0, struct.pack('<40I', *range(40))),
        (1, npy((3, 8), '<i8', ids)), (1, npy((24,), '<u2', ids[:48])),
        (2, safetensors(flat)), (2, safetensors(classes)), (2, safetensors(replay)),
        (3, tsv), (3, b'1\tab a!\n0\tb w\n'), (3, b'text\tlabel\nab\t0.5\n'),
        (4, b'label,text\n' + b''.join(('%s,"%s"\n' % (a, b.replace('"', '""'))).encode() for a, b in rows)),
        (5, b''.join(text({'label': int(a), 'text': b}) + b'\n' for a, b in rows)),
        (5, text({'text': 'a b', 'labels': [1, 0, 1]}) + b'\n'),
        (6, b'[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\n'),
        (7, 'Áb!  \u597d\u597d a\u0301b [SEP]\t\u0085x'.encode()),
    ]
    with open(SENTIMENT + 'vocab.txt', 'rb') as f:
        files.append((6, f.read()))
    for kind, content in files:
        for options in (0x00, 0x01, 0x10, 0x1e, 0x20, 0x3a, 0x46):
            yield bytes([kind, options]) + content


def rules():
    infos = [
        {'universal_checkpoint_version': 0.2, 'original_vocab_size': 7,
         'vocabulary_parameter_patterns': ['^embed\\.weight$'],
         'tp_replicated_parameter_patterns': ['.*norm.*', r'layers\.\d+\.bias'],
         'parameter_to_average_patterns': ['mean'],
         'parameter_with_2_sub_params_cat_dim_0': ['gate_up'],
         'parameter_with_row_parallelism_patterns': ['dense\\.weight$', '(a|b)+c'],
         'pipeline_replicated_parameter_patterns': ['embed']},
        {'parameter_with_sub_params': [{'patterns': ['qkv.*'], 'shape': [[2, 4, 2], 3], 'partition_dim': 0},
                                       {'patterns': ['fused'], 'shape': [8, 6], 'partition_dim': 0}],
         'sub_param_shard_widths': {'fused': [[2, 2], [2, 2]]}},
        {'autotp_unsupported_parameter_patterns': {'bad': 'not convertible'},
         'affine_map': {'version': 1, 'params': {'w': {
             'logical_shape': [8, 6], 'ranks': {str(r): {'pieces': [{
                 'shape': [4, 6], 'source': [24 * r, [6, 1]], 'dest': [0, [6, 1]]}]} for r in range(2)}}}}},
    ]
    names = [b'embed.weight', b'layers.0.bias', b'gate_up.weight', b'qkv.w', b'fused', b'w', b'bad', b'x.dense.weight']
    for info in infos:
        yield b'\0'.join([text(info)] + names)


def journals():
    lines = b'file 0 7 0badcafe a\nfile 1 3 00000000 b/c\nplace 2049 131\n'
    for head in range(4):
        yield bytes([head]) + lines
    yield b'\2' + lines[:30]


def moves():
    """Fields end at '|'."""
    for text in ('+new/a|c||*|||.|||-|a|was/1|E', 'm|e||+new/a|e/a||*|||E', 'f|d||=new/a|a|was/1|*|||E', '-|a|was/1|=mid/head|d/b|was/2|*|||E',
                 '=new/gone|a|was/0|*|||-|d/b|was/3|.|||E', '+new/a|out/x||*|||E', '+out/a|x||E', '-|../outside/a|was/1|E'):
        yield text.replace('|', '\0').encode()


def bare(path):
    """A torch file as small as it can be, without checksums, so that changes of its bytes are seen."""
    with tempfile.TemporaryFile() as out:
        with zipfile.ZipFile(path) as z, zipfile.ZipFile(out, 'w', zipfile.ZIP_STORED) as w:
            for name in z.namelist():
                if not name.endswith(('serialization_id', '.format_version', '.storage_alignment')):
                    w.writestr(zipfile.ZipInfo(name), z.read(name))
            places = [(i.header_offset + 14) for i in w.infolist()]
        out.seek(0)
        b = bytearray(out.read())
    for at in places:
        b[at:at + 4] = bytes(4)
    at = b.find(b'PK\1\2')
    while at >= 0:
        b[at + 16:at + 20] = bytes(4)
        at = b.find(b'PK\1\2', at + 4)
    return bytes(b)


def folder(root):
    out = b''
    for d, _, files in sorted(os.walk(root)):
        for f in sorted(files):
            path = os.path.join(d, f)
            name = os.path.relpath(path, root).encode()
            if f.endswith('.pt'):
                content = bare(path)
            else:
                with open(path, 'rb') as o:
                    content = o.read()
            out += bytes([len(name)]) + name + struct.pack('<I', len(content))[:3] + content
    return out


def universal(programs):
    ckpt = os.path.join(programs, 'ckpt')
    with tempfile.TemporaryDirectory() as tmp:
        model = os.path.join(tmp, 'm.safetensors')
        with open(model, 'wb') as o:
            o.write(safetensors({'w': ('F32', [2, 3], struct.pack('<6f', *range(6))),
                                 'b': ('F32', [3], struct.pack('<3f', 6, 7, 8))}))
        for stage in ('2', '3'):
            run, out = os.path.join(tmp, 'z' + stage), os.path.join(tmp, 'u' + stage)
            subprocess.run([ckpt, 'reshard', '-q', '-w', '1', '-s', stage, '--order', 'stored', model, run], check=True)
            subprocess.run([ckpt, 'convert', '-q', '--to', 'universal', run, out], check=True)
            yield folder(out)
        out = os.path.join(tmp, 'tp')
        subprocess.run([ckpt, 'convert', '-q', '--to', 'universal', 'tests/fixtures/tp2_z1_w4/ckpt', out], check=True)
        yield folder(out)


def distributed():
    for name in ('dcp_mesh2d_w4', 'dcp_plain_w2', 'old_dcp_torch20_w2', 'fsdp2_mp_w2'):
        out = b''
        for part in ('.metadata', '__0_0.distcp', '__1_0.distcp'):
            with open('tests/fixtures/%s/ckpt/%s' % (name, part), 'rb') as o:
                content = o.read()
            out += content if part.startswith('__1') else struct.pack('<I', len(content))[:3] + content
        yield out


def megatron():
    for name in ('mcore_llama_distopt_dp2', 'mcore_llama_dpreshard_dp2', 'mlegacy_distopt_dp2', 'mlegacy_gpt2_tp2_pp2'):
        yield folder('tests/fixtures/%s/ckpt' % name)


def conversions(programs):
    """A byte for the target, one for options (state 1, drop objects 2, ranks 4, small files 8) and layout maps (16 times 0 to 3), and a folder."""
    runs = [('mcore_llama_distopt_dp2/ckpt', 1), ('mlegacy_distopt_dp2/ckpt', 0), ('hf_trainer_llama_z3_bf16_w2/ckpt', 17), ('map_mcore_mixtral/hf', 16),
            ('map_mcore_gpt2/hf', 32), ('map_mcore_deepseek3/hf', 48)]
    listed = subprocess.run([os.path.join(programs, 'ckpt'), 'formats', '--json'], check=True, capture_output=True).stdout
    formats = [f['name'] for f in json.loads(listed)['formats'] if f['write']]
    for name, bits in runs:
        content = folder('tests/fixtures/' + name)
        yield bytes([1, bits | 2]) + content
        yield bytes([1, bits | 14]) + content
    for name, bits in runs[2:]:
        yield bytes([2 * formats.index('megatron-legacy'), bits & 48 | 4]) + folder('tests/fixtures/' + name)
        yield bytes([2 * formats.index('megatron-legacy'), bits & 48]) + folder('tests/fixtures/' + name)
    runs += [('z1_bf16_w2_fp32acc/ckpt', 1), ('dcp_plain_w2/ckpt', 0)]
    for i in range(len(formats)):
        name, bits = runs[i % len(runs)]
        yield bytes([2 * i, bits & 15 | 4]) + folder('tests/fixtures/' + name)


def ranks():
    for name in ('rl_verl_fsdp1_w2', 'rl_fsdp1_shardedtensor_w3'):
        out = b''
        for which, kind in enumerate(('model', 'optim', 'extra_state')):
            for rank in 0, 1:
                found = glob.glob('tests/fixtures/%s/ckpt/%s_world_size_*_rank_%d.pt' % (name, kind, rank))
                with zipfile.ZipFile(found[0]) as z:
                    top = z.namelist()[0].split('/')[0]
                    pickle, sizes = z.read(top + '/data.pkl'), b''
                    while '%s/data/%d' % (top, len(sizes) // 2) in z.namelist():
                        sizes += struct.pack('<H', z.getinfo('%s/data/%d' % (top, len(sizes) // 2)).file_size)
                out += bytes([which | rank << 2, len(sizes) // 2]) + sizes + struct.pack('<I', len(pickle))[:3] + pickle
        yield out


def adapters():
    """A configuration, and factors for each of the base's three matrices."""
    def one(shapes, **config):
        head, data = {}, b''
        for name, shape in shapes.items():
            n = 4
            for x in shape:
                n *= x
            head['base_model.model.' + name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + n]}
            data += b'\0\0\x80?' * (n // 4)
        config = dict({'peft_type': 'LORA', 'r': 2, 'lora_alpha': 4}, **config)
        head = json.dumps(head).encode()
        return json.dumps(config).encode() + b'\0' + struct.pack('<Q', len(head)) + head + data
    proj = {'h.0.attn.c_proj.lora_A.weight': [2, 4], 'h.0.attn.c_proj.lora_B.weight': [8, 2]}
    table = {'model.embed_tokens.lora_embedding_A': [2, 4], 'model.embed_tokens.lora_embedding_B': [4, 2]}
    yield one(proj, use_rslora=True, rank_pattern={'c_proj': 2})
    yield one(dict(proj, **{'h.0.attn.c_proj.lora_magnitude_vector': [8]}), use_dora=True)
    yield one(dict(table, **{'model.embed_tokens.base_layer.weight': [4, 4]}), alpha_pattern={'^model.*': 3})
    yield one({'model.embed_tokens.weight': [4, 4]}, modules_to_save=['embed_tokens'])
    yield one({'layers.1.mlp.experts.lora_A.weight': [4, 8], 'layers.1.mlp.experts.lora_B.weight': [4, 4]},
              target_parameters=['mlp.experts.up'])


def listings():
    """Listings of buckets, and what XML may have besides."""
    entry = '<Contents><Key>%s</Key><Owner><ID>x</ID></Owner><Size>%d</Size></Contents>'
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    yield (head + entry % ('a/b&amp;c', 7) + '<IsTruncated>true</IsTruncated><NextContinuationToken>1/2=='
           '</NextContinuationToken></ListBucketResult>').encode()
    yield b'\xef\xbb\xbf<a:b c="d>" e=\'"\'><!-- - --><f/><g><![CDATA[<&]]></g>&#65;&#x20ac;&lt;</a:b>\n'
    yield b'<Error><Code>AccessDenied</Code><Message>no\xc3\xa9</Message></Error>'
    yield b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'


def main():
    target, corpus = sys.argv[1:3]
    made = {'fuzz_ds_config': configs, 'fuzz_hjson': configs, 'fuzz_model_config': models, 'fuzz_hostfile': hosts,
            'fuzz_data': data, 'fuzz_uni_rules': rules, 'fuzz_journal': journals, 'fuzz_moves': moves, 'fuzz_adapter': adapters, 'fuzz_xml': listings,
            'fuzz_dcp': distributed, 'fuzz_megatron': megatron, 'fuzz_fsdp_ranks': ranks, 'fuzz_universal': lambda: universal(sys.argv[3]),
            'fuzz_convert': lambda: conversions(sys.argv[3])}
    for i, seed in enumerate(made[target]()):
        with open(os.path.join(corpus, 'seed%d' % i), 'wb') as o:
            o.write(seed)


main()
