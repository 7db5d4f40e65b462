/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdlib.c: owns what a pickle may name of Python's standard library.
 *
 * A name is inert when neither a look at it nor a call of it can run code that the file brings
 * along, open a file or a connection, or start a process.  Everything else is refused, so that no
 * list of dangerous names is needed: names that attacks use are among what is not listed here.
 */
#include <assert.h>

#include "libckpt/codec/pickle/stdlib.h"

#include <stdlib.h>
#include <string.h>

/*
 * Top-level modules of the standard library, sorted: CPython 3.11's own list
 * (sys.stdlib_module_names), what later releases added, what Python 2 called them, and
 * the installers that come with every Python.
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

/* Modules, by their full names, that hold data and arithmetic only; sorted. */
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

/* What they hold all the same: makers of code from text, and code itself; sorted. */
static const char *const std_denied[] = {
    "_operator.call", "collections.namedtuple", "dataclasses._FuncBuilder",
    "dataclasses._create_fn", "dataclasses.make_dataclass", "operator.call", "types.CodeType",
    "types.FunctionType", "types.LambdaType", "types.ModuleType", "types.new_class",
    "typing._eval_type", "typing.get_type_hints",
};

/* Names of other modules; sorted. */
static const char *const std_single[] = {
    "_io.StringIO", "http.cookies.Morsel", "http.cookies.SimpleCookie", "inspect.Parameter",
    "inspect.Signature", "inspect._ParameterKind", "inspect._empty", "io.BytesIO", "io.StringIO",
    "json.JSONDecoder", "json.JSONEncoder", "json.decoder.JSONDecoder", "json.dumps",
    "json.encoder.JSONEncoder", "json.loads", "logging.Filter", "logging.Formatter",
    "logging.Logger", "logging.LoggerAdapter", "logging.RootLogger", "logging.getLogger",
    "os.PathLike", "os.stat_result", "os.terminal_size", "platform.uname_result", "signal.Signals",
    "socket.AddressFamily", "socket.SocketKind", "xml.etree.ElementTree.Element",
};

/* Functions among the builtins, Python 2's too; classes are named in trust.c; sorted. */
static const char *const std_builtins[] = {
    "abs", "all", "any", "ascii", "basestring", "bin", "callable", "chr", "classmethod", "cmp",
    "divmod", "enumerate", "filter", "float", "format", "hash", "hex", "id", "intern", "isinstance",
    "issubclass", "iter", "len", "long", "map", "max", "memoryview", "min", "next", "oct", "ord",
    "pow", "print", "property", "reduce", "repr", "reversed", "round", "sorted", "staticmethod",
    "sum", "super", "type", "unichr", "zip",
};
// clang-format on

#define STD_LIST(list) list, sizeof(list) / sizeof *(list)

/* For bsearch. */
static int std_compare(const void *key, const void *entry)
{
    return strcmp(key, *(const char *const *)entry);
}

/* True if the text is in a sorted list. */
static bool std_has(const char *text, const char *const *list, size_t n)
{
    return bsearch(text, list, n, sizeof *list, std_compare) != NULL;
}

/* The part of a module's name before the first dot; false: longer than any of the library's. */
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
    char top[32]; // longer than every module of the list

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
    // random.random, _random.Random: what a module is named after
    return module.n < name.n ||
           memcmp(module.at + module.n - name.n, name.at, (size_t)name.n) != 0 ||
           (module.n > name.n && !strchr("._", module.at[module.n - name.n - 1]));
}

/* Builtins: classes of exceptions and warnings, and functions that only compute. */
static bool std_is_builtin(const char *name)
{
    size_t n = strlen(name);

    if (std_has(name, STD_LIST(std_builtins)))
        return true;
    return name[0] >= 'A' && name[0] <= 'Z' && n > 4;
}

bool ckpt_name_stdlib_inert(ckpt_text module, ckpt_text name)
{
    assert(module.at && name.at);
    char full[128], *at = full;

    if (module.n + name.n + 2 > sizeof full)
        return false;
    memcpy(at, module.at, (size_t)module.n);
    at += module.n;
    *at++ = '\0';
    memcpy(at, name.at, (size_t)name.n);
    at[name.n] = '\0';
    if (strcmp(full, "builtins") == 0)
        return std_is_builtin(at);
    bool dunder = name.n >= 2 && memcmp(name.at, "__", 2) == 0;
    bool inert =
        !dunder && std_has(full, STD_LIST(std_inert)) && !ckpt_name_is_module(module, name);
    at[-1] = '.';
    return inert ? !std_has(full, STD_LIST(std_denied)) : std_has(full, STD_LIST(std_single));
}
