/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.c: classifies the names in a pickle: known, harmless or refused.
 *
 * The order of the rules:
 *   1. exact full names of the table below: names that torch, numpy, DeepSpeed and the distributed
 *      checkpoints write, and plain data of the standard library;
 *   2. dotted names (protocol 4) are judged by their first part, which must be a class: a name
 *      that walks through modules is refused;
 *   3. any other name of the standard library is inert or refused (stdlib.c).  Of the inert names
 *      a pickle may only call classes, and the functions that pickles of its objects call;
 *   4. under torch and numpy: classes are opaque, except dangerous ones that they import from
 *      elsewhere.  Functions that only compute are opaque too, but a pickle may not call them
 *      (fsdp.wrap's lambda_auto_wrap_policy calls its argument).  Every other function is refused,
 *      because both packages have functions that run code;
 *   5. all other names belong to packages that we do not know: opaque.
 * The lists of dangerous names (std_denied in stdlib.c, pn_workshops, pn_outlets) only hold the
 * exceptions to these rules.
 */
#include <assert.h>

#include "libckpt/codec/pickle/trust.h"

#include <string.h>

#include "libckpt/base/dtype.h"

typedef struct pn_entry {
    const char *module, *name;
    ckpt_name_id id;
} pn_entry;

#define DCP          "torch.distributed.checkpoint.metadata"
#define DCP_SHARD    "torch.distributed._shard.sharded_tensor.metadata"
#define NUMPY_1      "numpy.core.multiarray"
#define NUMPY_2      "numpy._core.multiarray"
#define NUMPY_RANDOM "numpy.random._pickle"
#define SCALER       "deepspeed.runtime.fp16.loss_scaler"

static const pn_entry pn_table[] = {
    {"collections", "OrderedDict", CKPT_NAME_ODICT},
    {"collections", "defaultdict", CKPT_NAME_DATA_MAP},
    {"collections", "Counter", CKPT_NAME_DATA_MAP},
    {"collections", "deque", CKPT_NAME_DATA_SEQ},
    {"builtins", "set", CKPT_NAME_SET},
    {"builtins", "frozenset", CKPT_NAME_FROZENSET},
    {"builtins", "bytes", CKPT_NAME_BYTES},
    {"builtins", "bytearray", CKPT_NAME_BYTEARRAY},
    {"builtins", "complex", CKPT_NAME_DATA},
    {"builtins", "range", CKPT_NAME_DATA},
    {"builtins", "slice", CKPT_NAME_DATA},
    {"builtins", "object", CKPT_NAME_DATA},
    // default factories, bases of _reconstructor
    {"builtins", "bool", CKPT_NAME_DATA},
    {"builtins", "int", CKPT_NAME_DATA},
    {"builtins", "float", CKPT_NAME_DATA},
    {"builtins", "str", CKPT_NAME_DATA},
    {"builtins", "list", CKPT_NAME_DATA},
    {"builtins", "tuple", CKPT_NAME_DATA},
    {"builtins", "dict", CKPT_NAME_DATA},
    {"builtins", "Ellipsis", CKPT_NAME_CONSTANT},
    {"builtins", "NotImplemented", CKPT_NAME_CONSTANT},
    {"builtins", "getattr", CKPT_NAME_GETATTR},
    {"functools", "partial", CKPT_NAME_PARTIAL},
    {"_functools", "partial", CKPT_NAME_PARTIAL},
    {"copyreg", "_reconstructor", CKPT_NAME_RECONSTRUCT},
    {"_codecs", "encode", CKPT_NAME_ENCODE},
    {"torch.distributed.remote_device", "_remote_device", CKPT_NAME_DATA},
    {"argparse", "Namespace", CKPT_NAME_DATA},
    {"_io", "BytesIO", CKPT_NAME_DATA}, // extra state of Transformer Engine's modules
    {"types", "SimpleNamespace", CKPT_NAME_DATA},
    {"datetime", "date", CKPT_NAME_DATA},
    {"datetime", "datetime", CKPT_NAME_DATA},
    {"datetime", "time", CKPT_NAME_DATA},
    {"datetime", "timedelta", CKPT_NAME_DATA},
    {"datetime", "timezone", CKPT_NAME_DATA},
    {"datetime", "tzinfo", CKPT_NAME_DATA},
    {"decimal", "Decimal", CKPT_NAME_DATA},
    {"fractions", "Fraction", CKPT_NAME_DATA},
    {"uuid", "UUID", CKPT_NAME_DATA},
    {"pathlib", "Path", CKPT_NAME_DATA},
    {"pathlib", "PosixPath", CKPT_NAME_DATA},
    {"pathlib", "WindowsPath", CKPT_NAME_DATA},
    {"pathlib", "PurePath", CKPT_NAME_DATA},
    {"pathlib", "PurePosixPath", CKPT_NAME_DATA},
    {"pathlib", "PureWindowsPath", CKPT_NAME_DATA},
    {"pathlib._local", "Path", CKPT_NAME_DATA}, // Python 3.13 only
    {"pathlib._local", "PosixPath", CKPT_NAME_DATA},
    {"pathlib._local", "WindowsPath", CKPT_NAME_DATA},
    {"pathlib._local", "PurePath", CKPT_NAME_DATA},
    {"pathlib._local", "PurePosixPath", CKPT_NAME_DATA},
    {"pathlib._local", "PureWindowsPath", CKPT_NAME_DATA},
    {SCALER, "LossScaler", CKPT_NAME_DATA},
    {SCALER, "DynamicLossScaler", CKPT_NAME_DATA},
    {"deepspeed.runtime.zero.config", "ZeroStageEnum", CKPT_NAME_DATA},
    {"deepspeed.utils.tensor_fragment", "fragment_address", CKPT_NAME_DATA},
    {"deepspeed.runtime.bf16_optimizer", "fragment_address", CKPT_NAME_DATA},
    {"deepspeed.checkpoint.universal_checkpoint", "SubparamShape", CKPT_NAME_DATA},
    {"numpy", "ndarray", CKPT_NAME_DATA},
    {"numpy", "dtype", CKPT_NAME_DATA},
    {"numpy", "matrix", CKPT_NAME_DATA},
    {"numpy", "memmap", CKPT_NAME_DATA},
    {"numpy", "poly1d", CKPT_NAME_DATA},
    {"numpy", "recarray", CKPT_NAME_DATA},
    {"numpy", "record", CKPT_NAME_DATA},
    {"numpy.rec", "recarray", CKPT_NAME_DATA},
    {"numpy.core.records", "recarray", CKPT_NAME_DATA},
    {"numpy._core.records", "recarray", CKPT_NAME_DATA},
    {"numpy.matrixlib.defmatrix", "matrix", CKPT_NAME_DATA},
    {"numpy.ma.core", "_mareconstruct", CKPT_NAME_RECONSTRUCT},
    {"numpy.core", "_ufunc_reconstruct", CKPT_NAME_DATA},
    {"numpy._core", "_ufunc_reconstruct", CKPT_NAME_DATA},
    {"numpy.random", "__RandomState_ctor", CKPT_NAME_DATA},
    {NUMPY_RANDOM, "__randomstate_ctor", CKPT_NAME_DATA},
    {NUMPY_RANDOM, "__generator_ctor", CKPT_NAME_DATA},
    {NUMPY_RANDOM, "__bit_generator_ctor", CKPT_NAME_DATA},
    {"numpy.random.bit_generator", "__pyx_unpickle_SeedSequence", CKPT_NAME_DATA},
    {"numpy.random.bit_generator", "SeedSequence", CKPT_NAME_DATA},
    {"numpy.random._mt19937", "MT19937", CKPT_NAME_DATA},
    {"numpy.random._pcg64", "PCG64", CKPT_NAME_DATA},
    {"numpy.random._pcg64", "PCG64DXSM", CKPT_NAME_DATA},
    {"numpy.random._philox", "Philox", CKPT_NAME_DATA},
    {"numpy.random._sfc64", "SFC64", CKPT_NAME_DATA},
    {NUMPY_1, "_reconstruct", CKPT_NAME_RECONSTRUCT},
    {NUMPY_2, "_reconstruct", CKPT_NAME_RECONSTRUCT},
    {NUMPY_1, "scalar", CKPT_NAME_DATA},
    {NUMPY_2, "scalar", CKPT_NAME_DATA},
    {"numpy.core.numeric", "_frombuffer", CKPT_NAME_DATA},
    {"numpy._core.numeric", "_frombuffer", CKPT_NAME_DATA},
    {"torch", "Size", CKPT_NAME_SIZE},
    {"torch", "device", CKPT_NAME_DATA},
    {"torch.serialization", "_get_layout", CKPT_NAME_DATA},
    {"torch", "Tensor", CKPT_NAME_TENSOR},
    {"torch.nn.parameter", "Parameter", CKPT_NAME_TENSOR},
    {"torch.nn.parameter", "Buffer", CKPT_NAME_TENSOR},
    {"torch.storage", "UntypedStorage", CKPT_NAME_UNTYPED},
    {"torch", "UntypedStorage", CKPT_NAME_UNTYPED},
    {"torch", "QInt8Storage", CKPT_NAME_QSTORAGE},
    {"torch", "QUInt8Storage", CKPT_NAME_QSTORAGE},
    {"torch", "QInt32Storage", CKPT_NAME_QSTORAGE},
    {"torch", "QUInt4x2Storage", CKPT_NAME_QSTORAGE},
    {"torch", "QUInt2x4Storage", CKPT_NAME_QSTORAGE},
    {"torch._utils", "_rebuild_tensor", CKPT_NAME_REBUILD_V1},
    {"torch._utils", "_rebuild_tensor_v2", CKPT_NAME_REBUILD_V2},
    {"torch._utils", "_rebuild_tensor_v3", CKPT_NAME_REBUILD_V3},
    {"torch._utils", "_rebuild_parameter", CKPT_NAME_REBUILD_PARAMETER},
    {"torch._utils", "_rebuild_parameter_with_state", CKPT_NAME_REBUILD_PARAMETER_STATE},
    {"torch._tensor", "_rebuild_from_type_v2", CKPT_NAME_REBUILD_FROM_TYPE},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", CKPT_NAME_REBUILD_META},
    {"torch._utils", "_rebuild_qtensor", CKPT_NAME_REBUILD_QTENSOR},
    {"torch._utils", "_rebuild_sparse_tensor", CKPT_NAME_REBUILD_SPECIAL},
    {"torch._utils", "_rebuild_sparse_csr_tensor", CKPT_NAME_REBUILD_SPECIAL},
    {"torch._utils", "_rebuild_nested_tensor", CKPT_NAME_REBUILD_SPECIAL},
    {"torch._utils", "_rebuild_wrapper_subclass", CKPT_NAME_REBUILD_SPECIAL},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", CKPT_NAME_REBUILD_SPECIAL},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", CKPT_NAME_REBUILD_SPECIAL},
    {"torch._utils", "_rebuild_xla_tensor", CKPT_NAME_REBUILD_SPECIAL},
    // the default factory of a dict in GradScaler objects
    {"torch.amp.grad_scaler", "_refresh_per_optimizer_state", CKPT_NAME_CONSTANT},
    {"torch.cuda.amp.grad_scaler", "_refresh_per_optimizer_state", CKPT_NAME_CONSTANT},
    {DCP, "Metadata", CKPT_NAME_DATA},
    {DCP, "TensorStorageMetadata", CKPT_NAME_DATA},
    {DCP, "BytesStorageMetadata", CKPT_NAME_DATA},
    {DCP, "ChunkStorageMetadata", CKPT_NAME_DATA},
    {DCP, "TensorProperties", CKPT_NAME_DATA},
    {DCP, "MetadataIndex", CKPT_NAME_DATA},
    {DCP, "StorageMeta", CKPT_NAME_DATA},
    {DCP, "_MEM_FORMAT_ENCODING", CKPT_NAME_DATA},
    {DCP_SHARD, "TensorProperties", CKPT_NAME_DATA},
    {DCP_SHARD, "MEM_FORMAT_ENCODING", CKPT_NAME_DATA},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", CKPT_NAME_DATA},
};

/*
 * Attributes of the module torch that are constants: dtypes that we lack, layouts, quantization
 * schemes, memory formats.
 */
static const char *const pn_torch_constants[] = {
    "qint8",
    "quint8",
    "qint32",
    "quint4x2",
    "quint2x4",
    "bcomplex32",
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
    "strided",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "jagged",
    "_mkldnn",
    "per_tensor_affine",
    "per_channel_affine",
    "per_tensor_symmetric",
    "per_channel_symmetric",
    "per_channel_affine_float_qparams",
    "contiguous_format",
    "preserve_format",
    "channels_last",
    "channels_last_3d",
};

/* Scalar types of numpy, which pickles use as constants. */
// clang-format off
static const char *const pn_numpy_constants[] = {
    "bool", "bool_", "byte", "bytes_", "cdouble", "character", "clongdouble", "complex128",
    "complex256", "complex64", "complexfloating", "csingle", "datetime64", "double", "flexible",
    "float128", "float16", "float32", "float64", "floating", "generic", "half", "inexact", "int16",
    "int32", "int64", "int8", "intc", "integer", "intp", "long", "longdouble", "longlong", "number",
    "object_", "short", "signedinteger", "single", "str_", "timedelta64", "ubyte", "uint", "uint16",
    "uint32", "uint64", "uint8", "uintc", "uintp", "ulong", "ulonglong", "unsignedinteger",
    "ushort", "void",
};

/* Modules of torch and numpy whose functions only compute. */
static const char *const pn_pure_modules[] = {
    "numpy.fft", "numpy.linalg", "numpy.random", "numpy.random._generator", "numpy.random.mtrand",
    "torch._C._VariableFunctions", "torch._C._fft", "torch._C._linalg", "torch._C._nn",
    "torch._C._special", "torch.ao.quantization.fake_quantize", "torch.ao.quantization.observer",
    "torch.distributed.fsdp._wrap_utils", "torch.distributed.fsdp.wrap", "torch.fft",
    "torch.functional", "torch.linalg", "torch.nn.functional", "torch.nn.init",
    "torch.nn.utils.clip_grad", "torch.nn.utils.parametrizations", "torch.nn.utils.parametrize",
    "torch.nn.utils.weight_norm", "torch.optim.lr_scheduler", "torch.optim.swa_utils",
    "torch.special", "torch.utils.data._utils.collate",
};

/* Functions of torch and numpy themselves that only compute. */
static const char *const pn_pure[] = {
    "abs", "absolute", "acos", "acosh", "add", "all", "amax", "amin", "any", "arange", "arccos",
    "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort",
    "array", "asarray", "asin", "asinh", "atan", "atan2", "atanh", "average", "batch_norm",
    "bitwise_and", "bitwise_or", "bmm", "cat", "cbrt", "ceil", "celu", "clamp", "clip", "concat",
    "concatenate", "copysign", "cos", "cosh", "cross", "cumprod", "cumsum", "deg2rad", "diff",
    "divide", "dot", "dropout", "einsum", "empty", "equal", "erf", "erfc", "erfinv", "exp", "exp2",
    "expm1", "eye", "flip", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "full",
    "gelu", "greater", "greater_equal", "group_norm", "hardtanh", "heaviside", "hstack", "hypot",
    "instance_norm", "isclose", "isfinite", "isinf", "isnan", "layer_norm", "lerp", "less",
    "less_equal", "lgamma", "linspace", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logsumexp", "matmul", "max", "maximum", "mean",
    "median", "min", "minimum", "mul", "multiply", "nan_to_num", "nanmean", "nanmedian", "nansum",
    "neg", "negative", "norm", "not_equal", "ones", "ones_like", "outer", "polyval", "positive",
    "pow", "power", "prelu", "prod", "quantile", "rad2deg", "rand", "rand_like", "randint", "randn",
    "randn_like", "reciprocal", "relu", "relu_", "remainder", "reshape", "rint", "roll", "rot90",
    "round", "rrelu", "rsqrt", "rsub", "selu", "sigmoid", "sign", "silu", "sin", "sinc", "sinh",
    "softmax", "softplus", "sort", "sqrt", "square", "stack", "std", "sub", "subtract", "sum",
    "take", "tan", "tanh", "tensor", "tensordot", "threshold", "transpose", "true_divide", "trunc",
    "var", "vstack", "where", "zeros", "zeros_like",
};

/* Packages of torch and numpy that build, start processes, test or download; no data names them. */
static const char *const pn_workshops[] = {
    "numpy.distutils", "numpy.f2py", "numpy.testing", "torch._inductor", "torch.backends.xeon",
    "torch.distributed.debug", "torch.distributed.run", "torch.hub", "torch.multiprocessing",
    "torch.package", "torch.testing", "torch.utils.benchmark", "torch.utils.bottleneck",
    "torch.utils.collect_env", "torch.utils.cpp_extension", "torch.utils.tensorboard",
    "torch.utils.viz",
};

/*
 * Dangerous names that modules of torch and numpy import and that look like classes: modules under
 * a short name, makers of code, and classes that load a library, open a file or a connection, or
 * start a process.
 */
static const char *const pn_outlets[] = {
    "C", "CDLL", "CodeType", "F", "FileStore", "ForkingPickler", "FunctionType", "GraphModule",
    "L", "LambdaType", "Manager", "ModuleType", "N", "NX", "NamedTemporaryFile", "PackageImporter",
    "Pool", "Popen", "Process", "ProcessPoolExecutor", "PyDLL", "SourceFileLoader",
    "SummaryWriter", "TCPStore", "TemporaryFile", "Thread", "ThreadPoolExecutor",
    "ThreadingHTTPServer", "Unpickler", "ZipFile", "_C", "_C_onnx", "_IR", "_ModuleType",
    "_Pickler", "_Reduction", "_TemporaryFileWrapper", "_Unpickler", "_VF",
};
// clang-format on

/* True if the n bytes at s are the terminated text. */
static bool pn_same(ckpt_text s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.at, text, (size_t)s.n) == 0;
}

/* True if s is one of n texts. */
static bool pn_among(ckpt_text s, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (pn_same(s, list[i]))
            return true;
    }
    return false;
}

bool ckpt_name_is_framework(ckpt_text module)
{
    static const char *const list[] = {"torch", "numpy", "functorch", "torchgen", "caffe2"};
    const char *dot = memchr(module.at, '.', (size_t)module.n);

    if (dot)
        module.n = (uint64_t)(dot - module.at);
    return pn_among(module, list, sizeof list / sizeof *list);
}

bool ckpt_name_leads_out(ckpt_text module, ckpt_text attribute)
{
    return ckpt_name_is_module(module, attribute) || ckpt_name_is_framework(attribute) ||
           pn_among(attribute, pn_outlets, sizeof pn_outlets / sizeof *pn_outlets);
}

/* True for a module in the list, or below one of them. */
static bool pn_is_under(ckpt_text module, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(list[i]);

        if (module.n >= len && memcmp(module.at, list[i], len) == 0 &&
            (module.n == len || module.at[len] == '.'))
            return true;
    }
    return false;
}

/*
 * True for six.moves.builtins and the like, also in packages with their own copy of six: they are
 * other names for the standard library.
 */
static bool pn_is_six(ckpt_text module)
{
    static const char moves[] = "six.moves";
    const uint64_t n = sizeof moves - 1;

    for (uint64_t i = 0; i + n <= module.n; i++) {
        if (memcmp(module.at + i, moves, (size_t)n) == 0 && (i == 0 || module.at[i - 1] == '.') &&
            (i + n == module.n || module.at[i + n] == '.'))
            return true;
    }
    return false;
}

/* True for a function of the frameworks that only computes and is not a module that they import. */
static bool pn_is_pure(const ckpt_global *g)
{
    static const char *const top[] = {"torch", "numpy", "numpy.core._multiarray_umath",
                                      "numpy._core._multiarray_umath"};

    if (pn_same(g->name, "") || g->name.at[0] == '_' || ckpt_name_is_module(g->module, g->name))
        return false;
    if (pn_among(g->module, top, sizeof top / sizeof *top))
        return pn_among(g->name, pn_pure, sizeof pn_pure / sizeof *pn_pure);
    return pn_among(g->module, pn_pure_modules, sizeof pn_pure_modules / sizeof *pn_pure_modules);
}

/* Find a name in the table; CKPT_NAME_OPAQUE: it is not there. */
static ckpt_name_id pn_listed(const ckpt_global *g)
{
    for (size_t i = 0; i < sizeof pn_table / sizeof *pn_table; i++) {
        if (pn_same(g->name, pn_table[i].name) && pn_same(g->module, pn_table[i].module))
            return pn_table[i].id;
    }
    if (pn_same(g->module, "torch")) {
        if (ckpt_dtype_from_torch(g->name.at, (size_t)g->name.n) != CKPT_DTYPE_NONE)
            return CKPT_NAME_DTYPE;
        if (ckpt_dtype_from_torch_storage(g->name.at, (size_t)g->name.n) != CKPT_DTYPE_NONE)
            return CKPT_NAME_STORAGE;
        if (pn_among(g->name, pn_torch_constants,
                     sizeof pn_torch_constants / sizeof *pn_torch_constants))
            return CKPT_NAME_CONSTANT;
    }
    if (pn_same(g->module, "numpy") &&
        pn_among(g->name, pn_numpy_constants,
                 sizeof pn_numpy_constants / sizeof *pn_numpy_constants))
        return CKPT_NAME_CONSTANT;
    return CKPT_NAME_OPAQUE;
}

/*
 * True for a name of the frameworks, outside of the table, that is refused: it is in a package of
 * tools, looks like a class and is dangerous, or is a function that may run code.
 */
static bool pn_is_refused(const ckpt_global *g)
{
    if (pn_is_under(g->module, pn_workshops, sizeof pn_workshops / sizeof *pn_workshops))
        return true;
    return ckpt_name_class_like(g->name) ? ckpt_name_leads_out(g->module, g->name) : !pn_is_pure(g);
}

/* Classify a name without dots. */
static ckpt_name_id pn_plain(const ckpt_global *g, const char **why)
{
    ckpt_name_id id = pn_listed(g);

    if (id != CKPT_NAME_OPAQUE)
        return id;
    if (ckpt_name_is_stdlib(g->module)) {
        if (ckpt_name_stdlib_inert(g->module, g->name))
            return CKPT_NAME_DATA;
        *why = "a part of Python's standard library that is not plain data";
    } else if (pn_is_six(g->module)) {
        *why = "another name for Python's standard library";
    } else if (ckpt_name_is_framework(g->module) && pn_is_refused(g)) {
        *why = ckpt_name_class_like(g->name)
                   ? "which its package needs to build, start or load code"
                   : "a function that no checkpoint needs";
    }
    return *why ? CKPT_NAME_UNSAFE : CKPT_NAME_OPAQUE;
}

bool ckpt_name_called(const ckpt_global *g)
{
    assert(g);
    bool library = ckpt_name_is_stdlib(g->module);

    if (pn_same(g->module, "numpy") && pn_same(g->name, "memmap"))
        return false; // memmap opens a file; arrays of this class are made by _reconstruct instead
    if ((!library && !ckpt_name_is_framework(g->module)) || pn_listed(g) != CKPT_NAME_OPAQUE)
        return true;
    return library ? ckpt_name_stdlib_called(g->module, g->name) : ckpt_name_class_like(g->name);
}

bool ckpt_name_is_class(const ckpt_global *g)
{
    assert(g);
    ckpt_name_id id = pn_listed(g);

    return ckpt_name_class_like(g->name) || id == CKPT_NAME_DATA || id == CKPT_NAME_DATA_MAP ||
           id == CKPT_NAME_DATA_SEQ || id == CKPT_NAME_SET || id == CKPT_NAME_FROZENSET ||
           id == CKPT_NAME_BYTES || id == CKPT_NAME_BYTEARRAY;
}

/* Classify a dotted name: a class, and an attribute of it. */
static ckpt_name_id pn_dotted(const ckpt_global *g, uint64_t first, const char **why)
{
    const ckpt_global outer = {g->module, {g->name.at, first}};
    ckpt_text part = {g->name.at + first + 1, g->name.n - first - 1};
    ckpt_name_id id = pn_plain(&outer, why);
    bool ok = id != CKPT_NAME_UNSAFE && ckpt_name_is_class(&outer);

    while (ok && part.at) {
        const char *dot = memchr(part.at, '.', (size_t)part.n);
        ckpt_text own = {part.at, dot ? (uint64_t)(dot - part.at) : part.n};

        ok = ckpt_name_attribute(own) &&
             (!ckpt_name_is_stdlib(g->module) || ckpt_name_stdlib_attribute(g->module, own)) &&
             (!ckpt_name_is_framework(g->module) ||
              (ckpt_name_class_like(own) && !ckpt_name_leads_out(g->module, own)));
        part = (ckpt_text){dot ? dot + 1 : NULL, dot ? part.n - own.n - 1 : 0};
    }
    if (ok)
        return id == CKPT_NAME_OPAQUE ? CKPT_NAME_OPAQUE : CKPT_NAME_DATA;
    if (!*why)
        *why = "a dotted name that reaches through modules";
    return CKPT_NAME_UNSAFE;
}

ckpt_name_id ckpt_name_find(const ckpt_global *name, const char **why)
{
    assert(name);
    const char *reason = NULL;
    const char *dot = memchr(name->name.at, '.', (size_t)name->name.n);
    ckpt_name_id id = CKPT_NAME_OPAQUE;

    if (!ckpt_name_is_group(name->module, name->name))
        id = dot ? pn_dotted(name, (uint64_t)(dot - name->name.at), &reason)
                 : pn_plain(name, &reason);
    if (why)
        *why = reason;
    return id;
}

bool ckpt_name_is_frame(ckpt_text s)
{
    static const char *const list[] = {
        "ag_code",      "ag_frame", "co_code",   "cr_code",  "cr_frame",     "f_back",
        "f_builtins",   "f_code",   "f_globals", "f_locals", "func_closure", "func_code",
        "func_globals", "gi_code",  "gi_frame",  "im_func",  "tb_frame",     "tb_next",
    };

    return pn_among(s, list, sizeof list / sizeof *list);
}

bool ckpt_name_attribute(ckpt_text s)
{
    if (ckpt_name_is_frame(s))
        return false;
    if (s.n == 0 || (s.n >= 2 && s.at[0] == '_' && s.at[1] == '_' && !pn_same(s, "__new__")))
        return false;
    for (uint64_t i = 0; i < s.n; i++) {
        char c = s.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return true;
}

bool ckpt_name_is_group(ckpt_text module, ckpt_text name)
{
    static const char place[] = "torch.distributed.";

    return pn_same(name, "ShardedTensor.ProcessGroupState") && module.n >= sizeof place - 1 &&
           memcmp(module.at, place, sizeof place - 1) == 0;
}

bool ckpt_name_known(const ckpt_value *cls)
{
    assert(cls);
    while (cls->kind == CKPT_V_OBJECT && cls->as.object->cls)
        cls = cls->as.object->cls; // a call made the class, so the called name decides
    return cls->kind == CKPT_V_GLOBAL && ckpt_name_find(&cls->as.global, NULL) != CKPT_NAME_OPAQUE;
}

/* Replace a text by a static one if it is equal to another. */
static void pn_swap(ckpt_text *s, const char *from, const char *to)
{
    if (pn_same(*s, from)) {
        *s = (ckpt_text){to, strlen(to)};
    }
}

/*
 * Normalise torch.channels_last and similar constants: torch writes them as attributes of any
 * module that has imported torch.
 */
static void pn_constant(ckpt_global *name)
{
    static const ckpt_text torch = {"torch", 5};
    ckpt_text rest = {name->name.at + 6, name->name.n - 6};

    if (name->name.n > 6 && memcmp(name->name.at, "torch.", 6) == 0 &&
        ckpt_name_is_framework(name->module) &&
        pn_among(rest, pn_torch_constants, sizeof pn_torch_constants / sizeof *pn_torch_constants))
        *name = (ckpt_global){torch, rest};
}

void ckpt_name_to_python3(ckpt_global *name)
{
    pn_constant(name);
    pn_swap(&name->module, "copy_reg", "copyreg");
    pn_swap(&name->module, "exceptions", "builtins");
    if (pn_same(name->module, "__builtin__")) {
        pn_swap(&name->module, "__builtin__", "builtins");
        pn_swap(&name->name, "xrange", "range");
        pn_swap(&name->name, "unicode", "str");
        pn_swap(&name->name, "long", "int");
    }
}

void ckpt_name_to_python2(ckpt_global *name)
{
    pn_swap(&name->module, "copyreg", "copy_reg");
    if (pn_same(name->module, "builtins")) {
        pn_swap(&name->module, "builtins", "__builtin__");
        pn_swap(&name->name, "range", "xrange");
        pn_swap(&name->name, "str", "unicode");
        pn_swap(&name->name, "int", "long");
    }
}
