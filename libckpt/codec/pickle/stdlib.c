/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdlib.c: decides which names of Python's standard library a pickle may use.
 *
 * A name is inert if neither importing nor calling it can run code from the file, open a file or a
 * connection, or start a process.  Every name outside of the lists of inert ones is refused, so
 * that dangerous names need no complete list, except those inside modules that are listed as inert
 * (std_denied).
 */
#include <assert.h>

#include "libckpt/codec/pickle/stdlib.h"

#include <stdlib.h>
#include <string.h>

/*
 * Top-level modules of the standard library, sorted: CPython 3.11's own list
 * (sys.stdlib_module_names), modules of later releases, the names of Python 2, and the installers
 * that come with every Python.
 */
// clang-format off
static const char *const std_modules[] = {
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

/* Modules, by their full names, with only data and arithmetic; sorted. */
static const char *const std_inert[] = {
    "Queue", "UserDict", "UserList", "UserString", "_abcoll", "_bisect", "_collections",
    "_collections_abc", "_contextvars", "_datetime", "_decimal", "_functools", "_hashlib", "_heapq",
    "_operator", "_pydatetime", "_pydecimal", "_queue", "_random", "_struct", "_typing", "_weakref",
    "_weakrefset", "_zoneinfo", "abc", "argparse", "array", "bisect", "calendar", "cmath",
    "collections", "collections.abc", "contextvars", "copy", "dataclasses", "datetime", "decimal",
    "difflib", "enum", "errno", "exceptions", "fractions", "functools", "graphlib", "hashlib",
    "heapq", "html", "http", "ipaddress", "itertools", "keyword", "math", "numbers", "operator",
    "pathlib", "pathlib._abc", "pathlib._local", "pathlib.types", "pprint", "queue", "random", "re",
    "repr", "reprlib", "secrets", "sre_constants", "statistics", "string", "struct", "textwrap",
    "time", "token", "types", "typing", "unicodedata", "urllib.parse", "urlparse", "uuid",
    "weakref", "zoneinfo", "zoneinfo._zoneinfo",
};

/*
 * Exceptions: names that are dangerous in any of these modules, since modules import from each
 * other; sorted.  They make code from text, are code, are other modules, look attributes up by a
 * text, or call their arguments.
 */
static const char *const std_denied[] = {
    "CodeType", "FileType", "Formatter", "FunctionType", "LambdaType", "ModuleType",
    "SequenceMatcher", "_FuncBuilder", "bl", "bltns", "call", "clock_settime", "clock_settime_ns",
    "dataclass", "evaluate_forward_ref", "finalize", "get_annotations", "get_type_hints",
    "global_enum", "main", "make_dataclass", "namedtuple", "new_class", "setitem", "singledispatch",
    "singledispatchmethod", "stdlib_re",
};

/* Names that only the module operator may have. */
static const char *const std_lookup[] = {"attrgetter", "methodcaller"};

/* Inert names in other modules; sorted. */
static const char *const std_single[] = {
    "_io.StringIO", "array._array_reconstructor", "contextlib.nullcontext", "http.cookies.Morsel",
    "http.cookies.SimpleCookie", "inspect.Parameter", "inspect.Signature", "inspect._ParameterKind",
    "inspect._empty", "io.BytesIO", "io.StringIO", "json.JSONDecoder", "json.JSONEncoder",
    "json.decoder.JSONDecoder", "json.dumps", "json.encoder.JSONEncoder", "json.loads",
    "logging.Filter", "logging.Formatter", "logging.Logger", "logging.LoggerAdapter",
    "logging.PercentStyle", "logging.RootLogger", "logging.StrFormatStyle",
    "logging.StringTemplateStyle", "logging.getLogger", "os.PathLike", "os.stat_result",
    "os.terminal_size", "platform.uname_result", "re._compile", "signal.Signals",
    "socket.AddressFamily", "socket.SocketKind", "urllib.quote", "urllib.quote_plus",
    "urllib.unquote", "urllib.unquote_plus", "urllib.urlencode", "xml.etree.ElementTree.Element",
};

/* Inert functions of builtins, Python 2's too; trust.c lists the classes; sorted. */
static const char *const std_builtins[] = {
    "abs", "all", "any", "ascii", "basestring", "bin", "callable", "chr", "classmethod", "cmp",
    "divmod", "enumerate", "filter", "float", "format", "hash", "hex", "id", "intern", "isinstance",
    "issubclass", "iter", "len", "long", "map", "max", "memoryview", "min", "next", "oct", "ord",
    "pow", "print", "property", "reduce", "repr", "reversed", "round", "sorted", "staticmethod",
    "sum", "super", "type", "unichr", "zip",
};

/*
 * Functions that a pickle may call, besides classes.  All other inert functions may only be named,
 * because their results can be any object and some call their arguments.  map, filter and reduce
 * also call their arguments, so call.c allows only a few there.
 */
static const char *const std_called[] = {
    "_datetime.date", "_datetime.datetime", "_datetime.time", "_datetime.timedelta",
    "_datetime.timezone", "_functools.reduce", "_operator.attrgetter", "_operator.getitem",
    "_operator.itemgetter", "_operator.methodcaller", "_operator.or_", "_pydatetime.date",
    "_pydatetime.datetime", "_pydatetime.time", "_pydatetime.timedelta", "_pydatetime.timezone",
    "array._array_reconstructor", "array.array", "builtins.enumerate", "builtins.filter",
    "builtins.iter", "builtins.map", "builtins.reduce", "builtins.reversed", "builtins.type",
    "builtins.zip", "contextlib.nullcontext", "enum.auto", "functools.partialmethod",
    "functools.reduce", "itertools.chain", "itertools.combinations",
    "itertools.combinations_with_replacement", "itertools.compress", "itertools.count",
    "itertools.cycle", "itertools.ifilter", "itertools.imap", "itertools.islice", "itertools.izip",
    "itertools.izip_longest", "itertools.permutations", "itertools.product", "itertools.repeat",
    "itertools.starmap", "itertools.zip_longest", "logging.getLogger", "operator.attrgetter",
    "operator.getitem", "operator.itemgetter", "operator.methodcaller", "operator.or_",
    "os.stat_result", "os.terminal_size", "platform.uname_result", "re._compile", "re.compile",
    "re.error", "sre_constants.error", "struct.error", "time.struct_time",
};

/*
 * Metaclasses, which may not be called: a call makes a class, and a class runs the code in its
 * dict; sorted.
 */
static const char *const std_meta[] = {
    "ABCMeta", "EnumMeta", "EnumType", "NamedTupleMeta", "_AnyMeta", "_ProtocolMeta",
    "_TypedDictMeta",
};

/*
 * Modules with harmless attributes: the methods and members of their classes neither open a file
 * nor evaluate a text.
 */
static const char *const std_attributes[] = {
    "_collections", "_datetime", "_decimal", "_pydatetime", "_pydecimal", "_random", "_zoneinfo",
    "builtins", "collections", "collections.abc", "datetime", "decimal", "enum", "fractions",
    "http", "ipaddress", "random", "re", "signal", "socket", "uuid", "zoneinfo",
    "zoneinfo._zoneinfo",
};
// clang-format on

enum { STD_ROOM = 128 }; /* longer than every name in the lists */

#define STD_LIST(list) list, sizeof(list) / sizeof *(list)

/* Compare for bsearch. */
static int std_compare(const void *key, const void *entry)
{
    return strcmp(key, *(const char *const *)entry);
}

/* True if the text is in a sorted list. */
static bool std_has(const char *text, const char *const *list, size_t n)
{
    return bsearch(text, list, n, sizeof *list, std_compare) != NULL;
}

/* Copy the part of a module's name before the first dot; false: longer than any in the library. */
static bool std_top(ckpt_text module, char *out, size_t room)
{
    const char *dot = memchr(module.at, '.', (size_t)module.n);
    size_t n = dot ? (size_t)(dot - module.at) : (size_t)module.n;

    if (n >= room)
        return false;
    memcpy(out, module.at, n);
    out[n] = '\0';
    return true;
}

bool ckpt_name_class_like(ckpt_text name)
{
    uint64_t i = 0;

    while (i < name.n && name.at[i] == '_')
        i++;
    return i < name.n && name.at[i] >= 'A' && name.at[i] <= 'Z';
}

bool ckpt_name_is_stdlib(ckpt_text module)
{
    assert(module.at);
    char top[32]; // longer than every module in the list

    return std_top(module, top, sizeof top) && std_has(top, STD_LIST(std_modules));
}

bool ckpt_name_is_module(ckpt_text module, ckpt_text name)
{
    assert(module.at && name.at);
    while (name.n > 0 && name.at[0] == '_') {
        name.at++;
        name.n--;
    }
    if (ckpt_name_class_like(name) || !ckpt_name_is_stdlib(name))
        return false;
    // random.random, _random.Random: the name equals its module's own, so it is not another module
    return module.n < name.n ||
           memcmp(module.at + module.n - name.n, name.at, (size_t)name.n) != 0 ||
           (module.n > name.n && !strchr("._", module.at[module.n - name.n - 1]));
}

/*
 * True for an inert builtin: a class of exceptions or warnings, or a function that only computes.
 */
static bool std_is_builtin(const char *name)
{
    size_t n = strlen(name);

    if (std_has(name, STD_LIST(std_builtins)))
        return true;
    return name[0] >= 'A' && name[0] <= 'Z' && n > 4;
}

/* Write "module.name" into room bytes; false: longer than any name of the library. */
static bool std_full(ckpt_text module, ckpt_text name, char *out, size_t room)
{
    if (module.n + name.n + 2 > room)
        return false;
    memcpy(out, module.at, (size_t)module.n);
    out[module.n] = '.';
    memcpy(out + module.n + 1, name.at, (size_t)name.n);
    out[module.n + 1 + name.n] = '\0';
    return true;
}

/* True for a name that is not inert even though its module is listed. */
static bool std_is_denied(const char *module, const char *name)
{
    if (std_has(name, STD_LIST(std_denied)))
        return true;
    return std_has(name, STD_LIST(std_lookup)) && strcmp(module, "operator") != 0 &&
           strcmp(module, "_operator") != 0;
}

bool ckpt_name_stdlib_inert(ckpt_text module, ckpt_text name)
{
    assert(module.at && name.at);
    char full[STD_ROOM], *at = full + module.n + 1;

    if (name.n == 0 || !std_full(module, name, full, sizeof full))
        return false;
    if (std_has(full, STD_LIST(std_single)))
        return true;
    at[-1] = '\0';
    if (strcmp(full, "builtins") == 0)
        return std_is_builtin(at);
    // names with this beginning are internal to a module and were not reviewed:
    // uuid._get_command_stdout
    bool own = at[0] == '_' && (at[1] == '_' || !ckpt_name_class_like(name));

    return !own && std_has(full, STD_LIST(std_inert)) && !ckpt_name_is_module(module, name) &&
           !std_is_denied(full, at);
}

bool ckpt_name_stdlib_called(ckpt_text module, ckpt_text name)
{
    assert(module.at && name.at);
    char full[STD_ROOM];

    if (!std_full(module, name, full, sizeof full))
        return false;
    return ckpt_name_class_like(name) ? !std_has(full + module.n + 1, STD_LIST(std_meta))
                                      : std_has(full, STD_LIST(std_called));
}

bool ckpt_name_stdlib_attribute(ckpt_text module, ckpt_text name)
{
    assert(module.at && name.at);
    char full[STD_ROOM];

    if (name.n == 0 || module.n >= sizeof full)
        return false;
    memcpy(full, module.at, (size_t)module.n);
    full[module.n] = '\0';
    return std_has(full, STD_LIST(std_attributes)) &&
           (name.at[0] != '_' || ckpt_name_is_new(name) || ckpt_name_is_unpickle(module, name));
}

bool ckpt_name_is_new(ckpt_text attribute)
{
    return attribute.n == 7 && memcmp(attribute.at, "__new__", 7) == 0;
}

bool ckpt_name_is_unpickle(ckpt_text module, ckpt_text attribute)
{
    assert(module.at && attribute.at);
    static const char *const zone[] = {"_zoneinfo", "zoneinfo", "zoneinfo._zoneinfo"};
    char full[STD_ROOM];

    if (!std_full(module, attribute, full, sizeof full) ||
        strcmp(full + module.n + 1, "_unpickle") != 0)
        return false;
    full[module.n] = '\0';
    return std_has(full, STD_LIST(zone));
}

bool ckpt_name_only_called(const ckpt_global *g)
{
    assert(g);
    static const char *const list[] = {
        "_operator.attrgetter",
        "_operator.methodcaller",
        "operator.attrgetter",
        "operator.methodcaller",
    };
    char full[STD_ROOM];

    return std_full(g->module, g->name, full, sizeof full) && std_has(full, STD_LIST(list));
}
