"""The bootstrap of a waiting interpreter.

Evalbox's init starts `python3 [flags] -c WAITS modules` with this module first in the search
path, so site imports it before Python runs the command. It imports the modules, waits for a
job, and replaces the command in the configuration of the interpreter, which C code reads after
site: Python then runs the program of the job as if it had been started with it. No frame of
this module exists by then.

Init listens on SOCKET. READY is sent once, REFUSES with a reason instead of READY or TAKES; TAKES
means that the program is about to run. The job arrives as three descriptors: its text, and the
program's stdout and stderr. Until then stdout and stderr are discarded.
"""

import os
import sys

SOCKET, ARCHIVE = 62, 63
READY, TAKES, REFUSES = b"R", b"T", b"N"
WAITS = "evalbox: this interpreter waits for its program"
MOST_REASON = 500
WORD = 8


class Refusal(Exception):
    """The reason why this interpreter cannot be the program."""


def hide(path):
    """Removes this module, and the way on which Python found it."""
    import zipimport

    os.close(ARCHIVE)
    os.set_inheritable(SOCKET, False)
    sys.path.remove(path)
    sys.path_importer_cache.pop(path, None)
    zipimport._zip_directory_cache.pop(path, None)
    del sys.modules[__name__]
    del os.environ["PYTHONPATH"]


def import_next():
    """Imports the sitecustomize that this one hides, and reports whether there is one."""
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
        return False
    return True


class Memory:
    """The memory of this process. Reading through the file cannot crash."""

    def __init__(self):
        self.file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self):
        os.close(self.file)

    def read(self, address, size):
        try:
            return os.pread(self.file, size, address)
        except (OSError, OverflowError):
            return b""

    def words(self, address, count):
        data = self.read(address, count * WORD)
        return [int.from_bytes(data[i:i + WORD], sys.byteorder) for i in range(0, len(data), WORD)]

    def holds(self, address, text):
        """Reports whether a wchar_t string is at an address."""
        wide = (text + "\0").encode("utf-32-le")
        return address > 1 << 16 and self.read(address, len(wide)) == wide


class Config:
    """The places of the interpreter's PyConfig that say what it runs. Their positions differ
    between versions, so they are found by their contents. run_module and run_filename come
    behind run_command in every version."""

    WORDS = 128  # more than the structure has

    def __init__(self, path):
        import ctypes

        def function(name, result, *arguments):
            f = getattr(ctypes.pythonapi, name)
            f.restype, f.argtypes = result, arguments
            return f

        pointer, number = ctypes.c_void_p, ctypes.c_size_t
        self.ctypes = ctypes
        self.decode = function("Py_DecodeLocale", pointer, ctypes.c_char_p, pointer)
        self.allocate = function("PyMem_RawMalloc", pointer, number)
        self.free = function("PyMem_RawFree", None, pointer)
        self.flush = function("fflush", ctypes.c_int, pointer)
        self.break_at = function("sbrk", pointer, ctypes.c_ssize_t)
        self.prctl = function("prctl", ctypes.c_int, ctypes.c_int, number, pointer, number, number)
        base, memory = function("_Py_GetConfig", pointer)(), Memory()
        words = memory.words(base, self.WORDS)

        def lists(is_length, at, text):
            """Finds the lists with a text at a position, from the end if that is negative."""
            for i, (n, items) in enumerate(zip(words, words[1:])):
                if is_length(n) and memory.holds((memory.words(items + at % n * WORD, 1) or [0])[0], text):
                    yield base + i * WORD

        commands = [i for i, word in enumerate(words) if memory.holds(word, WAITS + "\n")]
        argv = list(lists(len(sys.argv).__eq__, -1, sys.argv[-1]))
        orig_argv = list(lists(len(sys.orig_argv).__eq__, -1, sys.argv[-1]))
        paths = list(lists(lambda n: 0 < n < 1000, 0, path))
        memory.close()
        if [len(commands), len(argv), len(orig_argv), len(paths)] != [1] * 4 or words[commands[0] + 1:commands[0] + 3] != [0, 0]:
            raise Refusal("the configuration of this Python is not known")
        self.run, self.argv, self.orig_argv = base + commands[0] * WORD, argv[0], orig_argv[0]
        self.set_list(paths[0], [os.fsencode(p) for p in self.list(paths[0])[1:]])

    def word(self, address):
        return self.ctypes.c_uint64.from_address(address)

    def set_text(self, address, text):
        """Replaces a string, which the interpreter frees at its end."""
        word = self.word(address)
        self.free(word.value)
        word.value = self.decode(text, None) if text is not None else 0

    def list(self, address):
        length, items = self.word(address).value, self.word(address + WORD).value
        return [self.ctypes.wstring_at(self.word(items + i * WORD).value) for i in range(length)]

    def set_list(self, address, texts):
        """Replaces a list of strings. The former one is not freed: that is not worth its code."""
        items = self.allocate(max(len(texts), 1) * WORD)
        for i, text in enumerate(texts):
            self.word(items + i * WORD).value = self.decode(text, None)
        self.word(address).value, self.word(address + WORD).value = len(texts), items

    def set(self, kind, text, argv, orig_argv):
        """Sets what runs: a command (0), a module (1) or a file (2)."""
        self.set_text(self.run, None)
        self.set_text(self.run + kind * WORD, text)
        self.set_list(self.argv, argv)
        self.set_list(self.orig_argv, orig_argv)

    def set_title(self, args, env):
        """Sets /proc/self/cmdline and environ, as far as the kernel permits it."""
        PR_SET_MM, PR_SET_MM_MAP, NO_FILE = 35, 14, 0xFFFFFFFF
        block = b"".join(word + b"\0" for word in args + env)
        start = self.allocate(len(block))
        self.ctypes.memmove(start, block, len(block))
        middle, end = start + sum(len(word) + 1 for word in args), start + len(block)
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        code, end_code, stack, data, end_data, heap = (int(fields[n - 3]) for n in (26, 27, 28, 45, 46, 47))  # of proc(5)
        map_ = (self.ctypes.c_uint64 * 13)(code, end_code, data, end_data, heap, self.break_at(0), stack, start, middle, middle, end, 0, NO_FILE << 32)
        self.prctl(PR_SET_MM, PR_SET_MM_MAP, self.ctypes.addressof(map_), self.ctypes.sizeof(map_), 0)


def say(what, reason=""):
    os.write(SOCKET, what + reason.encode("utf-8", "replace")[:MOST_REASON])


def receive(api, socket):
    """Waits for the job: its arguments, its environment, and its stdout and stderr."""
    size = 4  # of a descriptor
    data, control, _, _ = socket.recvmsg(1, api.CMSG_LEN(3 * size), api.MSG_CMSG_CLOEXEC)
    if not data:
        os._exit(1)
    raw = control[0][2]
    text, out, err = (int.from_bytes(raw[i:i + size], sys.byteorder) for i in range(0, 3 * size, size))
    data = os.pread(text, os.fstat(text).st_size, 0)
    os.close(text)
    count = int.from_bytes(data[:4], sys.byteorder)
    words = data[4:].split(b"\0")[:-1]
    return words[:count], words[count:], (out, err)


def environment(before, env):
    """Returns the variables that the job adds. Those that Python or the loader read at the start
    cannot change any more."""
    now = dict(word.split(b"=", 1) for word in env)
    added = {name: value for name, value in now.items() if before.get(name) != value}
    for name in added:
        if name.startswith((b"PYTHON", b"LD_")):
            raise Refusal("%s of the program differs" % os.fsdecode(name))
    return added


def check_shadows(directory, modules):
    """Refuses a program beside which is a file or directory that it would import instead of a
    module that is imported already."""
    import _imp

    suffixes = (".py", ".pyc", *_imp.extension_suffixes())
    try:
        with os.scandir(directory) as entries:
            names = {entry.name if entry.is_dir() else entry.name.split(".")[0] for entry in entries if entry.is_dir() or entry.name.endswith(suffixes)}
    except OSError:
        return
    for name in sorted(names & modules):
        raise Refusal("the program has a module %s of its own" % name)


class Exit:
    """Shortens the end of the interpreter where no program can notice it. Most of that time the garbage
    collector looks at the objects of the imported modules, several times. If no object is left whose
    end has an effect, there is nothing to collect: all objects are frozen then, right before Python
    ends. Nothing here runs code of the program, so types are compared by identity."""

    MOST_GROWTH = 32 << 20  # bytes: the lists of many objects would need much memory
    USES = "all any dict id issubclass len list map set str type vars zip".split()

    def __init__(self):
        import _imp
        import _io
        import _thread
        import _weakref

        loaded = set(sys.modules)
        import atexit
        import gc
        import itertools

        for name in set(sys.modules) - loaded:
            del sys.modules[name]
        self.compress, self.all_modules = itertools.compress, sys.modules
        self.functions = [(name, vars(sys.modules["builtins"])[name]) for name in self.USES]
        self.open, self.read, self.close, self.page = os.open, os.read, os.close, os.sysconf("SC_PAGE_SIZE")
        self.gc, self.suffixes, self.threads = gc, tuple(_imp.extension_suffixes()), _thread._count
        self.ref, self.callback = _weakref.ref, _weakref.ref.__dict__["__callback__"].__get__
        self.mro, self.dict = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
        self.function, self.builtin, self.module, self.generator = type(say), type(len), type(sys), type(_ for _ in ())
        self.text, self.file = _io.TextIOWrapper, _io.FileIO
        self.buffers, self.in_memory = (_io.BufferedReader, _io.BufferedWriter, _io.BufferedRandom), (_io.BytesIO, _io.StringIO)
        self.known = None
        atexit.register(self.end)  # what is registered first is called last

    def note(self, modules):
        """Notes the objects that are there before the program."""
        known = self.with_effects()
        for object in known:
            kind = type(object)
            is_stream = self.is_in(kind, (self.text, self.file, *self.buffers)) and object.fileno() < 3
            if not (is_stream or kind is self.generator or issubclass(kind, type)):
                return  # what a module does at its end is not known
        self.known, self.modules, self.memory = [self.ref(object) for object in known], modules, self.resident()

    def resident(self):
        """Returns the memory of this process in bytes."""
        file = self.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(self.read(file, 200).split()[1]) * self.page
        finally:
            self.close(file)

    @staticmethod
    def is_in(kind, kinds):
        return any(kind is one for one in kinds)

    def has_end(self, kind):
        """Reports whether something is called for the objects of a type at their end, or their end
        changes files."""
        return any("__del__" in names or str.__eq__("sqlite3", names.get("__module__")) is True for names in map(self.dict, self.mro(kind)))

    def with_effects(self):
        """Returns the objects whose end may have an effect, and the types of such objects: the
        collector does not list objects without references. Most objects are of a few types."""
        ref, callback, names = self.ref, self.callback, self.dict
        objects = self.gc.get_objects()
        kinds = list(map(type, objects))
        numbers = list(map(id, kinds))
        marked = {number for number, kind in dict(zip(numbers, kinds)).items() if issubclass(kind, (type, ref)) or self.has_end(kind)}
        found = [object for object in self.compress(objects, map(marked.__contains__, numbers))
                 if (callback(object) is not None if type(object) is ref else type(object) is not type or "__del__" in names(object))]
        return [object for object in found if not self.is_quiet(object)]

    def is_quiet(self, object):
        kind = type(object)
        if issubclass(kind, type):
            return "__del__" not in self.dict(object)
        if issubclass(kind, self.ref):
            return self.is_quiet_call(self.callback(object))
        if kind is self.generator:
            return object.gi_frame is None
        if kind is self.text:
            object = object.buffer
        if self.is_in(type(object), self.buffers):
            object = object.raw
        return self.is_in(type(object), self.in_memory) or type(object) is self.file and object.closed

    def is_quiet_call(self, call):
        """Reports whether the callback of a weak reference only tidies up a container."""
        if type(call) is self.builtin:
            return call.__name__ in ("_destroy", "_localdummy_destroyed")  # of abstract classes, and local data of threads
        if type(call) is not self.function:
            return call is None
        home, name = call.__globals__, call.__code__.co_name
        return any(home is self.names_of(module) and name in names for module, names in (
            ("weakref", ("remove", "_remove")), ("_weakrefset", ("_remove",)), ("logging", ("_removeHandlerRef",)), ("_frozen_importlib", ("cb",))))

    def names_of(self, module):
        module = sys.modules.get(module)
        return vars(module) if type(module) is self.module else None

    def is_short(self):
        if sys.modules is not self.all_modules:
            return False
        for name, function in self.functions:
            if sys.modules["builtins"].__dict__[name] is not function:
                return False
        if self.known is None or self.gc.callbacks or self.gc.get_debug() or self.threads() or sys.warnoptions:
            return False
        if self.resident() > self.memory + self.MOST_GROWTH:
            return False
        for name in set(sys.modules) - self.modules:
            file = (self.names_of(name) or {"__file__": self.suffixes[0]}).get("__file__")
            if type(file) is str and file.endswith(self.suffixes):
                return False  # the ends of its objects may have effects that cannot be seen here
        known = {id(ref()) for ref in self.known}
        return all(id(object) in known for object in self.with_effects())

    def end(self):
        try:
            sys._getframe(1)
        except ValueError:  # the interpreter has called it, not the program
            try:
                if self.is_short():
                    self.gc.freeze()
            except Exception:
                pass  # a file that is half made, for example


def command(args, modules):
    """Returns what an argument list runs, for Config.set."""
    if args[:1] == [b"-c"]:
        kind, text, argv = 0, args[1] + b"\n", args[:1] + args[2:]
    elif args[:1] == [b"-m"]:
        kind, text, argv = 1, args[1], args[:1] + args[2:]
    else:
        kind, argv, directory = 2, args, os.getcwdb()
        text = args[0]
        if not text.startswith(b"/"):
            text = directory + b"/" + text
    directory = os.getcwd()
    if kind == 2:
        import zipimport

        if os.path.isdir(text):
            raise Refusal("the program is a directory")
        try:
            zipimport.zipimporter(os.fsdecode(text))
        except zipimport.ZipImportError:
            pass
        else:
            raise Refusal("the program is an archive")
        directory = os.path.dirname(os.path.realpath(os.fsdecode(text)))
    if not getattr(sys.flags, "safe_path", False):
        check_shadows(directory, modules)
    return kind, text, argv


def prepare(path, loaded):
    """Does everything that does not need the job, and returns a function that waits for the job
    and turns this process into it."""
    if sys.implementation.name != "cpython" or not (3, 10) <= sys.version_info[:2] <= (3, 13):
        raise Refusal("only CPython 3.10 to 3.13 can wait")
    prefix, names = [os.fsencode(word) for word in sys.orig_argv[:-3]], sys.argv[1].split(",")
    before, at_end = dict(os.environb), Exit()
    for name in names:
        __import__(name)
    imported, found = set(sys.modules), set(sys.path_importer_cache)
    modules = {name.split(".")[0] for name in imported - loaded}
    import _socket
    import gc

    gc.collect()  # what the imports left behind is not the program's
    at_end.note(imported)
    config = Config(path)
    socket = _socket.socket(fileno=SOCKET)

    def become():
        args, env, streams = receive(_socket, socket)
        if args[:len(prefix)] != prefix:
            raise Refusal("the program needs another interpreter")
        added = environment(before, env)
        kind, text, argv = command(args[len(prefix):], modules)
        config.set(kind, text, argv, args)
        config.set_title(args, env)
        sys.argv[:] = map(os.fsdecode, argv)
        sys.orig_argv[:] = map(os.fsdecode, args)
        os.environb.update(added)
        sys.stdout.flush()
        sys.stderr.flush()
        config.flush(None)
        for fd, stream in enumerate(streams, 1):
            os.dup2(stream, fd)
            os.close(stream)
        for known, old in ((sys.modules, imported), (sys.path_importer_cache, found)):
            for name in set(known) - old:
                del known[name]
        say(TAKES)
        socket.close()

    return become


def main():
    path = "/proc/self/fd/%d" % ARCHIVE
    try:
        hide(path)
        is_there = import_next()
        loaded = set(sys.modules)
        become = prepare(path, loaded)
        say(READY)
        become()
    except BaseException as error:
        reason = str(error) if isinstance(error, Refusal) else "%s: %s" % (type(error).__name__, error)
        try:
            say(REFUSES, reason)
        finally:
            os._exit(1)  # Python must not go on
    return is_there


if not main():
    # site takes this for an image without a sitecustomize.
    raise ImportError("no module named " + __name__, name=__name__)
