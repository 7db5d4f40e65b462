/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pickle_names.c: the judgement on names, by the rules: what is listed, what the standard
 * library has, what torch and numpy have, and everybody else.
 */
#include "libckpt/codec/pickle/trust.h"
#include "tests/unit/unit.h"

static ckpt_name_id id_of(const char *module, const char *name)
{
    ckpt_global g = {{module, strlen(module)}, {name, strlen(name)}};
    const char *why = NULL;
    ckpt_name_id id;

    ckpt_name_to_python3(&g);
    id = ckpt_name_find(&g, &why);
    assert_true((id == CKPT_NAME_UNSAFE) == (why != NULL));
    return id;
}

static void known_names(void **state)
{
    (void)state;
    assert_int_equal(id_of("collections", "OrderedDict"), CKPT_NAME_ODICT);
    assert_int_equal(id_of("__builtin__", "set"), CKPT_NAME_SET);
    assert_int_equal(id_of("builtins", "set"), CKPT_NAME_SET);
    assert_int_equal(id_of("__builtin__", "xrange"), CKPT_NAME_DATA);
    assert_int_equal(id_of("__builtin__", "long"), CKPT_NAME_DATA);
    assert_int_equal(id_of("__builtin__", "unicode"), CKPT_NAME_DATA);
    assert_int_equal(id_of("copy_reg", "_reconstructor"), CKPT_NAME_RECONSTRUCT);
    assert_int_equal(id_of("_codecs", "encode"), CKPT_NAME_ENCODE);
    assert_int_equal(id_of("functools", "partial"), CKPT_NAME_PARTIAL);
    assert_int_equal(id_of("collections", "defaultdict"), CKPT_NAME_DATA_MAP);
    assert_int_equal(id_of("collections", "deque"), CKPT_NAME_DATA_SEQ);
    assert_int_equal(id_of("datetime", "timedelta"), CKPT_NAME_DATA);
    assert_int_equal(id_of("_io", "BytesIO"), CKPT_NAME_DATA);
    assert_int_equal(id_of("pathlib", "PosixPath"), CKPT_NAME_DATA);
    assert_int_equal(id_of("torch", "Size"), CKPT_NAME_SIZE);
    assert_int_equal(id_of("torch", "bfloat16"), CKPT_NAME_DTYPE);
    assert_int_equal(id_of("torch", "float4_e2m1fn_x2"), CKPT_NAME_DTYPE);
    assert_int_equal(id_of("torch", "qint8"), CKPT_NAME_CONSTANT);
    assert_int_equal(id_of("torch", "per_tensor_affine"), CKPT_NAME_CONSTANT);
    assert_int_equal(id_of("torch", "strided"), CKPT_NAME_CONSTANT);
    assert_int_equal(id_of("torch.amp.grad_scaler", "_refresh_per_optimizer_state"),
                     CKPT_NAME_CONSTANT);
    assert_int_equal(id_of("torch", "BFloat16Storage"), CKPT_NAME_STORAGE);
    assert_int_equal(id_of("torch", "QInt8Storage"), CKPT_NAME_QSTORAGE);
    assert_int_equal(id_of("torch.storage", "UntypedStorage"), CKPT_NAME_UNTYPED);
    assert_int_equal(id_of("torch._utils", "_rebuild_tensor_v2"), CKPT_NAME_REBUILD_V2);
    assert_int_equal(id_of("torch._tensor", "_rebuild_from_type_v2"), CKPT_NAME_REBUILD_FROM_TYPE);
    assert_int_equal(id_of("torch.serialization", "_get_layout"), CKPT_NAME_DATA);
    assert_int_equal(id_of("numpy.core.multiarray", "scalar"), CKPT_NAME_DATA);
    assert_int_equal(id_of("numpy._core.multiarray", "_reconstruct"), CKPT_NAME_RECONSTRUCT);
    assert_int_equal(id_of("numpy", "float32"), CKPT_NAME_CONSTANT);
    assert_int_equal(id_of("deepspeed.utils.tensor_fragment", "fragment_address"), CKPT_NAME_DATA);
    assert_int_equal(id_of("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
                     CKPT_NAME_DATA);
}

static const char *const unsafe_list[][2] = {
    // the standard library, C modules, Python 2's names, classes too
    {"os", "system"},
    {"posix", "system"},
    {"nt", "system"},
    {"os.path", "join"},
    {"subprocess", "Popen"},
    {"_posixsubprocess", "fork_exec"},
    {"cProfile", "run"},
    {"builtins", "eval"},
    {"__builtin__", "apply"},
    {"commands", "getoutput"},
    {"operator", "call"},
    {"builtins", "__import__"},
    {"builtins", "open"},
    {"builtins", "setattr"},
    {"builtins", "globals"},
    {"runpy", "run_module"},
    {"dataclasses", "make_dataclass"},
    {"dataclasses", "_create_fn"},
    {"typing", "_eval_type"},
    {"typing", "sys"}, // a module that the module imports
    {"functools", "__builtins__"},
    {"random", "_os"},
    {"re", "_compiler.compile"},
    {"base64", "b64decode"},
    {"marshal", "loads"},
    {"types", "CodeType"},
    {"types", "FunctionType"},
    {"importlib.machinery", "SourceFileLoader"},
    {"ctypes", "CDLL"},
    {"logging", "FileHandler"},
    {"_io", "FileIO"},
    {"zipimport", "zipimporter"},
    {"pickle", "loads"},
    {"_pickle", "Unpickler"},
    {"cPickle", "loads"},
    {"copyreg", "__newobj__"},
    {"collections", "namedtuple"},
    {"_codecs", "decode"},
    {"pip._internal", "main"},
    {"webbrowser", "open"},
    // functions of a plain module's own, other modules under a new name, and what makes code
    {"uuid", "_get_command_stdout"},
    {"random", "_test_generator"},
    {"enum", "bltns"},
    {"enum", "bl"},
    {"typing", "stdlib_re"},
    {"dataclasses", "dataclass"},
    {"dataclasses", "FunctionType"}, // types.FunctionType, which the module imports
    {"functools", "namedtuple"},
    {"functools", "singledispatch"},
    {"pathlib", "attrgetter"},
    {"argparse", "FileType"},
    {"string", "Formatter"},
    {"typing", "ForwardRef._evaluate"},
    {"pathlib", "Path.write_text"},
    {"enum", "Enum._convert_"},
    // what torch and numpy import under the name of a class
    {"numpy.distutils.fcompiler.gnu", "Popen"},
    {"numpy.distutils.ccompiler", "CCompiler_spawn"},
    {"torch._inductor.autotune_process", "CDLL"},
    {"torch._dynamo.convert_frame", "FunctionType"},
    {"torch", "_ModuleType"},
    {"torch.multiprocessing", "Pool"},
    {"torch.package", "PackageImporter"},
    {"torch.fx.graph_module", "GraphModule"},
    {"torch.functional", "F"},
    {"torch.functional", "F.torch.hub.Request"},
    {"torch.nn", "Module.F.Callable"},
    {"torch.utils._zip", "ZipFile"},
    // the standard library under another name
    {"six.moves.builtins", "eval"},
    {"urllib3.packages.six.moves", "builtins"},
    // functions of torch and numpy, and what they import
    {"torch", "load"},
    {"torch.hub", "load"},
    {"torch.storage", "_load_from_bytes"},
    {"torch.serialization", "os"},
    {"torch.utils.collect_env", "run"},
    {"torch._utils", "_import_dotted_name"},
    {"torch.jit.unsupported_tensor_ops", "execWrapper"},
    {"numpy", "load"},
    {"numpy.testing._private.utils", "runstring"},
    {"numpy", "fromfile"},
    {"numpy._core.multiarray", "__import__"},
    {"functorch", "vmap"},
    {"torch", "compile"},
    {"torch.nn.functional", "os"},
    {"torch.nn.functional", "__builtins__"},
    {"numpy.random", "sys"},
    // dotted names that walk through modules, or that methods of frameworks are
    {"torch.serialization", "os.system"},
    {"mytrainer", "os.system"},
    {"mytrainer", "Outer.__subclasses__"},
    {"mytrainer", "Outer."},
    {"mytrainer", "Outer..f"},
    {"mytrainer", ".Outer"},
    {"torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression"},
    {"logging", "os.system"},
    {"subprocess", "Popen.wait"},
};

static void unsafe_names(void **state)
{

    (void)state;
    for (size_t i = 0; i < sizeof unsafe_list / sizeof *unsafe_list; i++) {
        if (id_of(unsafe_list[i][0], unsafe_list[i][1]) != CKPT_NAME_UNSAFE)
            fail_msg("%s.%s is let through", unsafe_list[i][0], unsafe_list[i][1]);
    }
}

static void opaque_names(void **state)
{
    static const char *const list[][2] = {
        {"__main__", "Config"},
        {"mytrainer.state", "Progress"},
        {"transformers.trainer_utils", "HubStrategy"},
        {"deepspeed.runtime.config", "DeepSpeedConfig"},
        {"torch.nn.modules.linear", "Linear"},
        {"torch.distributed.fsdp.api", "_Private"},
        {"torch.nn.functional", "gelu"}, // functions that only compute
        {"torch", "relu"},
        {"numpy", "sin"},
        {"torch.distributed.fsdp.wrap", "transformer_auto_wrap_policy"},
        {"mytrainer", "Outer.Inner"},
        {"mytrainer", "Outer.method"},
        {"osmium", "Node"}, // begins like a module of the library
        {"a_module_with_a_name_that_is_longer_than_any_other", "Thing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (id_of(list[i][0], list[i][1]) != CKPT_NAME_OPAQUE)
            fail_msg("%s.%s is not opaque", list[i][0], list[i][1]);
    }
}

/* The list is searched by bisection: every name of it must be found. */
static void library_is_sorted(void **state)
{
    static const char *const ends[] = {
        "BaseHTTPServer",  "__future__", "_abc",  "abc",   "code",       "copyreg",
        "multiprocessing", "pty",        "queue", "runpy", "setuptools", "test",
        "zoneinfo"};

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        assert_int_not_equal(id_of(ends[i], "Anything"), CKPT_NAME_OPAQUE);
}

/* Names of the library that can do nothing: the first and the last of each sorted list too. */
static void inert_names(void **state)
{
    static const char *const list[][2] = {
        {"Queue", "Queue"},
        {"zoneinfo._zoneinfo", "ZoneInfo"},
        {"zoneinfo", "ZoneInfo._unpickle"},
        {"_io", "StringIO"},
        {"xml.etree.ElementTree", "Element"},
        {"builtins", "abs"},
        {"builtins", "zip"},
        {"builtins", "type"},
        {"builtins", "ValueError"},
        {"exceptions", "Exception"},
        {"builtins", "str.lower"},
        {"builtins", "dict.fromkeys"},
        {"collections", "OrderedDict.fromkeys"},
        {"collections", "UserDict"},
        {"collections.abc", "Mapping"},
        {"typing", "Any"},
        {"typing", "Optional"},
        {"types", "GenericAlias"},
        {"_operator", "getitem"},
        {"_operator", "or_"},
        {"operator", "attrgetter"},
        {"functools", "reduce"},
        {"re", "_compile"},
        {"random", "Random"},
        {"random", "random"},
        {"math", "sqrt"},
        {"array", "_array_reconstructor"},
        {"dataclasses", "Field"},
        {"enum", "Enum"},
        {"http", "HTTPStatus"},
        {"logging", "getLogger"},
        {"ipaddress", "IPv4Address"},
        {"numpy.random._pickle", "__generator_ctor"},
        {"numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (id_of(list[i][0], list[i][1]) != CKPT_NAME_DATA)
            fail_msg("%s.%s is not inert", list[i][0], list[i][1]);
    }
    assert_int_equal(id_of("torch._utils", "torch.channels_last"), CKPT_NAME_CONSTANT);
}

static void class_like(void **state)
{
    static const struct {
        const char *name;
        bool is;
    } list[] = {{"Tensor", true},  {"_Thing", true}, {"__Thing", true}, {"thing", false},
                {"_thing", false}, {"_", false},     {"", false},       {"9Lives", false}};

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        ckpt_text s = {list[i].name, strlen(list[i].name)};

        assert_int_equal(ckpt_name_class_like(s), list[i].is);
    }
}

static void both_pythons(void **state)
{
    static const char *const list[][4] = {
        {"__builtin__", "xrange", "builtins", "range"},
        {"__builtin__", "unicode", "builtins", "str"},
        {"__builtin__", "long", "builtins", "int"},
        {"__builtin__", "set", "builtins", "set"},
        {"copy_reg", "_reconstructor", "copyreg", "_reconstructor"},
        {"collections", "OrderedDict", "collections", "OrderedDict"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        ckpt_global g = {{list[i][0], strlen(list[i][0])}, {list[i][1], strlen(list[i][1])}};

        ckpt_name_to_python3(&g);
        assert_string_equal(g.module.at, list[i][2]);
        assert_string_equal(g.name.at, list[i][3]);
        ckpt_name_to_python2(&g);
        assert_string_equal(g.module.at, list[i][0]);
        assert_string_equal(g.name.at, list[i][1]);
        assert_int_equal(g.name.n, strlen(g.name.at));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_names),  cmocka_unit_test(unsafe_names),
        cmocka_unit_test(opaque_names), cmocka_unit_test(library_is_sorted),
        cmocka_unit_test(inert_names),  cmocka_unit_test(class_like),
        cmocka_unit_test(both_pythons),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
