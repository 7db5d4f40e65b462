# SPDX-License-Identifier: Apache-2.0
# Objects beside the tensors that name Python's own library, of each protocol: they are inert.  Names that attacks use stay refused.
for f in omegaconf optional partial; do # hyper-parameters of Lightning, with omegaconf 2.3
    ckpt convert -q "$FIXTURES/inert_objects/$f.ckpt" $f.safetensors
    echo "$f: $?"
done
ckpt cat omegaconf.safetensors w 2>/dev/null || ckpt ls omegaconf.safetensors
cat >make.py <<'EOF'
import argparse, array, collections, collections.abc, dataclasses, datetime, decimal, enum, fractions, functools, http, io, ipaddress, itertools
import logging, math, operator, os, pathlib, pickle, random, re, signal, string, sys, time, types, typing, urllib.parse, uuid, zipfile

for name in 'torch', 'torch._utils':
    sys.modules[name] = types.ModuleType(name)
torch, utils = sys.modules['torch'], sys.modules['torch._utils']
torch.FloatStorage = type('FloatStorage', (), {'__module__': 'torch'})
def _rebuild_tensor_v2(): pass
_rebuild_tensor_v2.__module__ = 'torch._utils'
_rebuild_tensor_v2.__qualname__ = '_rebuild_tensor_v2'
utils._rebuild_tensor_v2 = _rebuild_tensor_v2

class Storage: pass
class Tensor:
    def __reduce__(self):
        return _rebuild_tensor_v2, (Storage(), 0, (2, 3), (3, 1), False, collections.OrderedDict())
class Pickler(pickle._Pickler):
    def persistent_id(self, o):
        return ('storage', torch.FloatStorage, '0', 'cpu', 6) if isinstance(o, Storage) else None

class Color(enum.Enum): RED = 1
class Outer:
    class Inner: pass
    def method(self): pass
@dataclasses.dataclass
class Point: x: int = 1
def function(): pass

objects = [typing.Any, typing.Optional[int], list[int], int | None, typing.Dict[str, typing.List[float]], typing.Literal['a'], typing.Callable[[int], str],
    type(None), ValueError('x'), functools.partial(int, base=2), functools.partial(function, 1), re.compile('a+', re.I), re.I | re.M, function, len, math.sqrt, Outer().method,
    Outer.Inner(), Outer.Inner, str.lower, dict.fromkeys, Color.RED, Point(), pathlib.PurePosixPath('x'), datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
    uuid.UUID(int=5), decimal.Decimal('1.5'), decimal.getcontext(), fractions.Fraction(1, 3), operator.attrgetter('a.b'), operator.itemgetter(1), collections.Counter('aab'),
    collections.ChainMap({1: 2}), collections.deque([1], 3), collections.defaultdict(list, {1: [2]}), collections.UserDict({'a': 1}), argparse.Namespace(a=1),
    types.SimpleNamespace(a=1), range(3), slice(1, 2), frozenset({1}), 1j, array.array('d', [1.0]), random.Random(1), ipaddress.ip_address('1.2.3.4'), logging.getLogger('x'),
    http.HTTPStatus.OK, signal.SIGINT, urllib.parse.urlparse('http://a/b'), string.Template('$a'), iter([1, 2]), zip([1], [2]), itertools.count(3), ..., NotImplemented,
    collections.abc.Mapping, os.stat('/'), io.BytesIO(b'a'), io.StringIO('a'), time.gmtime(0)]
harm = {'system': os.system, 'eval': eval, 'open': open, 'import': __import__, 'getattr': getattr, 'partial': functools.partial, 'of_system': functools.partial(os.system, 'id'),
    'namedtuple': collections.namedtuple, 'methodcaller': operator.methodcaller('__subclasses__'), 'setattr': setattr}

def write(path, o, protocol):
    data = io.BytesIO()
    Pickler(data, protocol).dump({'w': Tensor(), 'o': o})
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as z:
        z.writestr('a/data.pkl', data.getvalue())
        z.writestr('a/version', '3\n')
        z.writestr('a/data/0', b'\0' * 24)

for protocol in 2, 4:
    write('objects_p%d.pt' % protocol, objects, protocol)
    for k, v in harm.items():
        write('harm_%s_p%d.pt' % (k, protocol), v, protocol)
EOF
python3 make.py
for p in 2 4; do
    ckpt ls objects_p$p.pt 2>err
    echo "objects of protocol $p: $?"
    [ "$(grep -c unsafe err)" = 0 ] || cat err
done
for f in harm_*.pt; do
    ckpt ls $f >out 2>&1
    echo "$f: $?"
done
