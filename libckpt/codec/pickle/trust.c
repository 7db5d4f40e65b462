/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.c: owns the list of names that may occur in a pickle, and the rule for all others.
 *
 * Order of judgement:
 *   1. exact full names of the table below: what torch, numpy, DeepSpeed and the distributed
 *      checkpoints write, and plain data of the standard library;
 *   2. dotted names (protocol 4): refused, they walk through modules;
 *   3. any other name of the standard library, Python 2's modules included: refused;
 *   4. under torch and numpy: classes are opaque, everything that is not named like a class is
 *      refused (both packages hold functions that run code);
 *   5. everything else belongs to packages we do not know: opaque.
 * Nothing is allowed by the prefix of its module, so no list of dangerous names is needed.
 */
#include <assert.h>

#include "libckpt/codec/pickle/trust.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"

typedef struct pn_entry {
    const char *module, *name;
    ckpt_name_id id;
} pn_entry;

#define DCP       "torch.distributed.checkpoint.metadata"
#define DCP_SHARD "torch.distributed._shard.sharded_tensor.metadata"
#define NUMPY_1   "numpy.core.multiarray"
#define NUMPY_2   "numpy._core.multiarray"
#define SCALER    "deepspeed.runtime.fp16.loss_scaler"

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

/* Attributes of the module torch that are values: dtypes beyond ours, layouts, schemes, formats. */
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

/* Scalar types of numpy, as values. */
static const char *const pn_numpy_constants[] = {
    "bool",       "bool_",   "bytes_",      "clongdouble", "complex128", "complex64",
    "datetime64", "float16", "float32",     "float64",     "int16",      "int32",
    "int64",      "int8",    "intc",        "intp",        "longdouble", "longlong",
    "object_",    "str_",    "timedelta64", "uint16",      "uint32",     "uint64",
    "uint8",      "uintc",   "uintp",       "ulonglong",   "void",
};

/*
 * Top-level modules of the standard library, sorted: CPython 3.11's own list
 * (sys.stdlib_module_names), what later releases added, what Python 2 called them, and
 * the installers that come with every Python.
 */
// clang-format off
static const char *const pn_stdlib[] = {
    "BaseHTTPServer", "CGIHTTPServer", "ConfigParser", "Cookie", "Dialog", "DocXMLRPCServer",
    "FileDialog", "HTMLParser", "Queue", "ScrolledText", "SimpleDialog", "SimpleHTTPServer",
    "SimpleXMLRPCServer", "SocketServer", "StringIO", "Tix", "Tkconstants", "Tkdnd", "Tkinter",
    "UserDict", "UserList", "UserString", "__builtin__", "__future__", "_abc", "_abcoll",
    "_aix_support", "_android_support", "_apple_support", "_ast", "_ast_unparse", "_asyncio",
    "_bisect", "_blake2", "_bootlocale", "_bootsubprocess", "_bz2", "_codecs", "_codecs_cn",
    "_codecs_hk", "_codecs_iso2022", "_codecs_jp", "_codecs_kr", "_codecs_tw", "_collections",
    "_collections_abc", "_colorize", "_compat_pickle", "_compression", "_contextvars", "_crypt",
    "_csv", "_ctypes", "_ctypes_test", "_curses", "_curses_panel", "_datetime", "_dbm", "_decimal",
    "_distutils_hack", "_dummy_thread", "_dummy_threading", "_elementtree", "_frozen_importlib",
    "_frozen_importlib_external", "_functools", "_gdbm", "_hashlib", "_heapq", "_hmac", "_imp",
    "_interpchannels", "_interpqueues", "_interpreters", "_io", "_ios_support", "_json", "_locale",
    "_lsprof", "_lzma", "_markupbase", "_md5", "_msi", "_multibytecodec", "_multiprocessing",
    "_opcode", "_opcode_metadata", "_operator", "_osx_support", "_overlapped", "_pickle",
    "_posixshmem", "_posixsubprocess", "_py_abc", "_py_warnings", "_pydatetime", "_pydecimal",
    "_pyio", "_pylong", "_pyrepl", "_queue", "_random", "_remote_debugging", "_scproxy", "_sha1",
    "_sha2", "_sha256", "_sha3", "_sha512", "_signal", "_sitebuiltins", "_socket", "_sqlite3",
    "_sre", "_ssl", "_stat", "_statistics", "_string", "_strptime", "_struct", "_subprocess",
    "_suggestions", "_symtable", "_sysconfig", "_testbuffer", "_testcapi", "_testinternalcapi",
    "_thread", "_threading_local", "_tkinter", "_tokenize", "_tracemalloc", "_types", "_typing",
    "_uuid", "_warnings", "_weakref", "_weakrefset", "_winapi", "_winreg", "_xxinterpchannels",
    "_xxsubinterpreters", "_zoneinfo", "_zstd", "abc", "aifc", "annotationlib", "antigravity",
    "anydbm", "argparse", "array", "ast", "asynchat", "asyncio", "asyncore", "atexit", "audioop",
    "base64", "bdb", "binascii", "binhex", "bisect", "builtins", "bz2", "cPickle", "cProfile",
    "cStringIO", "calendar", "ce", "cgi", "cgitb", "chunk", "cmath", "cmd", "code", "codecs",
    "codeop", "collections", "colorsys", "commands", "compileall", "compression", "concurrent",
    "configparser", "contextlib", "contextvars", "cookielib", "copy", "copy_reg", "copyreg",
    "crypt", "csv", "ctypes", "curses", "dataclasses", "datetime", "dbhash", "dbm", "decimal",
    "difflib", "dis", "distutils", "doctest", "dumbdbm", "dummy_thread", "dummy_threading",
    "easy_install", "email", "encodings", "ensurepip", "enum", "errno", "exceptions",
    "faulthandler", "fcntl", "filecmp", "fileinput", "fnmatch", "formatter", "fractions", "ftplib",
    "functools", "gc", "gdbm", "genericpath", "getopt", "getpass", "gettext", "glob", "graphlib",
    "grp", "gzip", "hashlib", "heapq", "hmac", "html", "htmlentitydefs", "http", "httplib",
    "idlelib", "ihooks", "imaplib", "imghdr", "imp", "importlib", "imputil", "inspect", "io",
    "ipaddress", "itertools", "json", "keyword", "lib2to3", "linecache", "locale", "logging",
    "lzma", "macpath", "macurl2path", "mailbox", "mailcap", "markupbase", "marshal", "math",
    "mimetypes", "mmap", "modulefinder", "msilib", "msvcrt", "multiprocessing", "netrc", "new",
    "nis", "nntplib", "nt", "ntpath", "nturl2path", "numbers", "opcode", "operator", "optparse",
    "os", "os2", "os2emxpath", "ossaudiodev", "parser", "pathlib", "pdb", "pickle", "pickletools",
    "pip", "pipes", "pkg_resources", "pkgutil", "platform", "plistlib", "popen2", "poplib",
    "posix", "posixfile", "posixpath", "pprint", "profile", "pstats", "pty", "pwd", "py_compile",
    "pyclbr", "pydoc", "pydoc_data", "pyexpat", "queue", "quopri", "random", "re", "readline",
    "repr", "reprlib", "resource", "rexec", "rlcompleter", "robotparser", "runpy", "sched",
    "secrets", "select", "selectors", "setuptools", "shelve", "shlex", "shutil", "signal", "site",
    "smtpd", "smtplib", "sndhdr", "socket", "socketserver", "spwd", "sqlite3", "sre_compile",
    "sre_constants", "sre_parse", "ssl", "stat", "statistics", "string", "stringprep", "struct",
    "subprocess", "sunau", "symbol", "symtable", "sys", "sysconfig", "syslog", "tabnanny",
    "tarfile", "telnetlib", "tempfile", "termios", "test", "textwrap", "this", "thread",
    "threading", "time", "timeit", "tkColorChooser", "tkCommonDialog", "tkFileDialog", "tkFont",
    "tkMessageBox", "tkSimpleDialog", "tkinter", "token", "tokenize", "tomllib", "trace",
    "traceback", "tracemalloc", "ttk", "tty", "turtle", "turtledemo", "types", "typing",
    "unicodedata", "unittest", "urllib", "urllib2", "urlparse", "uu", "uuid", "venv", "warnings",
    "wave", "weakref", "webbrowser", "wheel", "whichdb", "winreg", "winsound", "wsgiref", "xdrlib",
    "xml", "xmlrpc", "xmlrpclib", "xxlimited", "xxsubtype", "zipapp", "zipfile", "zipimport",
    "zlib", "zoneinfo",
};
// clang-format on

/* For bsearch. */
static int pn_compare(const void *key, const void *entry)
{
    return strcmp(key, *(const char *const *)entry);
}

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

/* The part of a module's name before the first dot, terminated; false if it is longer than any
 * that we know. */
static bool pn_top(ckpt_text module, char *out, size_t room)
{
    size_t n = 0;

    while (n < module.n && module.at[n] != '.') {
        if (n + 1 == room)
            return false;
        out[n] = module.at[n];
        n++;
    }
    out[n] = '\0';
    return true;
}

/* True for top-level modules that come with Python. */
static bool pn_is_stdlib(const char *top)
{
    return bsearch(top, pn_stdlib, sizeof pn_stdlib / sizeof *pn_stdlib, sizeof *pn_stdlib,
                   pn_compare) != NULL;
}

/* Packages that hold functions which run code beside the classes that checkpoints name. */
static bool pn_is_framework(const char *top)
{
    static const char *const list[] = {"torch", "numpy", "functorch", "torchgen", "caffe2"};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (strcmp(top, list[i]) == 0)
            return true;
    }
    return false;
}

bool ckpt_name_class_like(ckpt_text name)
{
    uint64_t i = 0;

    while (i < name.n && name.at[i] == '_')
        i++;
    return i < name.n && name.at[i] >= 'A' && name.at[i] <= 'Z';
}

/* The names that are listed one by one; CKPT_NAME_OPAQUE when it is none of them. */
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

ckpt_name_id ckpt_name_find(const ckpt_global *name, const char **why)
{
    assert(name);
    ckpt_name_id id = pn_listed(name);
    const char *reason = NULL;
    char top[32]; // longer than every module of the lists

    if (id != CKPT_NAME_OPAQUE)
        return id;
    if (ckpt_name_is_group(name->module, name->name)) {
        return CKPT_NAME_OPAQUE;
    } else if (memchr(name->name.at, '.', (size_t)name->name.n)) {
        reason = "a dotted name that reaches through modules";
    } else if (pn_top(name->module, top, sizeof top)) {
        if (pn_is_stdlib(top))
            reason = "a part of Python's standard library that is not plain data";
        else if (pn_is_framework(top) && !ckpt_name_class_like(name->name))
            reason = "a function that no checkpoint needs";
    }
    if (why)
        *why = reason;
    return reason ? CKPT_NAME_UNSAFE : CKPT_NAME_OPAQUE;
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
    return cls && cls->kind == CKPT_V_GLOBAL &&
           ckpt_name_find(&cls->as.global, NULL) != CKPT_NAME_OPAQUE;
}

/* Replace a text by a static one if it is equal to another. */
static void pn_swap(ckpt_text *s, const char *from, const char *to)
{
    if (pn_same(*s, from)) {
        *s = (ckpt_text){to, strlen(to)};
    }
}

void ckpt_name_to_python3(ckpt_global *name)
{
    pn_swap(&name->module, "copy_reg", "copyreg");
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
