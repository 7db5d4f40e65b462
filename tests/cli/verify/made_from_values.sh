# SPDX-License-Identifier: Apache-2.0
# Values beside the tensors that another program changed: each one that changes a result counts.
F=$FIXTURES
prove() { # OUT SRC [OPTION...]
    echo "-- $*"
    out=$1 src=$2
    shift 2
    ckpt verify -q "$out" --made-from "$src" "$@" 2>&1
    echo "exit status $?"
}
echo "-- a scalar that became a tensor"
ckpt reshard -q --world 1 "$F"/z3_bf16_w5_odd/ckpt run
python3 -c 'import glob, struct, sys, zipfile
TENSOR = (b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nLongStorage\nX\x03\0\0\x00999X\x03\0\0\0cpuK\x01tQK\0))\x89"
          b"ccollections\nOrderedDict\n)RtR")
path = glob.glob("run/*/*model_states.pt")[0]
with zipfile.ZipFile(path) as z:
    parts = {n: z.read(n) for n in z.namelist()}
pickle = next(n for n in parts if n.endswith("data.pkl"))
at = parts[pickle].index(b"K", parts[pickle].index(b"global_samples"))
parts[pickle] = parts[pickle][:at] + TENSOR + parts[pickle][at + 2:]
parts[pickle[:-8] + "data/999"] = struct.pack("<q", 40)
with zipfile.ZipFile(path, "w") as z:
    for n, data in parts.items():
        z.writestr(n, data)'
prove run "$F"/z3_bf16_w5_odd/ckpt
echo "-- vocabularies: additional entries, a missing file, a special token"
hf=$F/gguf_llama_deep/hf
fresh() {
    rm -rf hf && cp -r "$hf" hf && chmod -R u+w hf
}
change() { # FILE CODE: change the JSON x
    python3 -c 'import json, sys; x = json.load(open(sys.argv[1])); exec(sys.argv[2]); json.dump(x, open(sys.argv[1], "w"))' "$@"
}
fresh && change hf/tokenizer.json 'x["model"]["vocab"]["evil"] = 9999' && prove hf "$hf"
fresh && change hf/tokenizer_config.json 'x["bos_token"] = "evil"' && rm hf/tokenizer.json && prove hf "$hf"
fresh && echo '{}' >hf/added_tokens.json && ckpt verify hf --made-from "$hf" 2>/dev/null | grep metadata
echo "-- other weights beside those of the model"
fresh && for name in pytorch_model.bin adapter_model.safetensors model-00001-of-00002.safetensors model.safetensors.index.json; do
    cp hf/model.safetensors hf/$name && prove hf "$hf" && rm hf/$name
done
echo "-- files of other formats"
ckpt convert -q "$F"/map_meta_s1/hf meta --to consolidated 2>/dev/null && prove meta "$F"/map_meta_s1/hf
change meta/params.json 'x["norm_eps"] = 0.5; x["rope_theta"] = 7.0' && prove meta "$F"/map_meta_s1/hf
ckpt reshard -q --to fsdp-ranks --world 2 "$F"/z3_bf16_w5_odd/ckpt ranks
for file in ranks/*/fsdp_config.json; do
    change "$file" 'x["FSDP_version"] = 7'
done
prove ranks "$F"/z3_bf16_w5_odd/ckpt
rm "$file" && prove ranks "$F"/z3_bf16_w5_odd/ckpt
echo >ranks/global_step4/notes && ckpt verify ranks --made-from "$F"/z3_bf16_w5_odd/ckpt 2>/dev/null | grep metadata
echo "-- old and new keys of config.json, which may contradict each other"
fresh && change hf/config.json 'x["rope_theta"] = 50000.0; x["torch_dtype"] = x["dtype"]' && prove hf "$hf"
change hf/config.json 'x["rope_theta"] = 5.0; x["torch_dtype"] = "float32"' && prove hf "$hf"
echo "-- a merge: tensors that it only copies must be equal"
cp -r "$F"/peft_tied_head/merged merged && chmod -R u+w merged
python3 -c 'import json, struct; f = open("merged/model.safetensors", "r+b"); n = struct.unpack("<Q", f.read(8))[0]; h = json.loads(f.read(n))
f.seek(8 + n + h["model.norm.weight"]["data_offsets"][0]); b = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([b ^ 1]))'
prove merged "$F"/peft_tied_head/base --adapter "$F"/peft_tied_head/adapter 2>/dev/null
echo "-- values that differ beyond the ninth digit"
fresh && change hf/config.json 'x["rope_parameters"]["rope_theta"] = 50000.0000001' && prove hf "$hf"
python3 -c 'import json, struct
for name, x in (("one", 1.0), ("more", 1.0 + 2 ** -52)):
    h = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    open(name + ".safetensors", "wb").write(struct.pack("<Q", len(h)) + h + struct.pack("<d", x))'
prove more.safetensors one.safetensors
