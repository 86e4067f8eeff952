"""Renders chat templates. Template text is untrusted: it comes with a model file.

Started by the daemon with a socket as standard input and output, one frame each way per render.
  request   5 lengths (u32, little-endian), then as many parts:
            options (JSON), template source ("" when already sent), messages, tools, extra (JSON)
  reply     2 lengths, then a header (JSON) and the rendered text (UTF-8)
The first reply comes unasked: versions and what isolates this process, or why it cannot work.
"""
import ctypes
import datetime
import json
import os
import platform
import resource
import signal
import struct
import sys
import time
import unicodedata  # noqa: F401  used by \N{...} in template strings, and not loadable later

MEMORY_BYTES = int(sys.argv[1])
MAX_RENDERS = 100_000  # then a fresh process, in case something leaks
MAX_CPU_SECONDS = 600


def read_exactly(size):
    parts = []
    while size > 0:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            os._exit(0)  # the daemon is gone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def reply(header, text=""):
    try:
        body = text.encode()
    except UnicodeEncodeError:  # lone surrogates, from JSON escapes
        body = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    head = json.dumps(header).encode()
    frame = memoryview(struct.pack("<II", len(head), len(body)) + head + body)
    while frame:
        frame = frame[os.write(1, frame) :]


def make_environment(jinja2):
    """The environment of Hugging Face's apply_chat_template, minus what no template needs."""
    from jinja2.ext import Extension, loopcontrols
    from jinja2.nodes import CallBlock
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """{% generation %} ... {% endgeneration %} marks training text; here it prints its body."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return CallBlock(self.call_method("print_body"), [], [], body).set_lineno(line)

        def print_body(self, caller):
            return caller()

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def raise_exception(message):
        raise TemplateRaised(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: now.strftime(format)
    for name in ("lipsum", "cycler", "joiner"):
        del environment.globals[name]
    for name in ("random", "urlize"):
        del environment.filters[name]
    return environment


def check_jinja2(jinja2, environment):
    """Why this Jinja2 is unfit, or "". By behaviour: distributions patch without a new version."""
    version = tuple(int(part) for part in jinja2.__version__.split(".")[:2])
    if version < (3, 1):
        return f"Jinja2 {jinja2.__version__} is too old: 3.1 or newer is needed"
    # CVE-2024-56326: format methods that are reached indirectly must stay wrapped.
    if type(environment.getattr("", "format")) is type("".format):
        return (
            f"Jinja2 {jinja2.__version__} lets templates out of its sandbox (CVE-2024-56326): "
            "3.1.5 or newer, or a distribution's patched package is needed"
        )
    # CVE-2025-27516: the attr filter must go through the sandbox.
    probe = "{{ ('{0.__class__.__name__}' | attr('format'))('x') }}"
    try:
        escaped = "str" in environment.from_string(probe).render()
    except jinja2.exceptions.SecurityError:
        escaped = False
    if escaped:
        return (
            f"Jinja2 {jinja2.__version__} lets templates out of its sandbox (CVE-2025-27516): "
            "3.1.6 or newer, or a distribution's patched package is needed"
        )
    return ""


# Name: number on x86_64, on aarch64. What CPython needs to compute, and to read and write its socket.
SYSCALLS = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233), "setitimer": (38, 103),
    "getpid": (39, 172), "exit": (60, 93), "gettimeofday": (96, 169), "sigaltstack": (131, 132),
    "futex": (202, 98), "restart_syscall": (219, 128), "clock_gettime": (228, 113),
    "exit_group": (231, 94), "getrandom": (318, 278),
}  # fmt: skip
AUDIT_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def seccomp_program(arch, column):
    """A filter that lets SYSCALLS pass and fails every other call with EPERM."""
    load, jump_equal, jump_greater, ret = 0x20, 0x15, 0x35, 0x06
    kill, allow, refuse = 0x80000000, 0x7FFF0000, 0x00050001
    numbers = [numbers[column] for numbers in SYSCALLS.values()]
    program = [
        (load, 0, 0, 4),  # seccomp_data.arch
        (jump_equal, 1, 0, arch),
        (ret, 0, 0, kill),
        (load, 0, 0, 0),  # seccomp_data.nr
        (jump_greater, len(numbers), 0, 0x40000000),  # x32 calls
    ]
    program += [(jump_equal, len(numbers) - i, 0, n) for i, n in enumerate(numbers)]
    program += [(ret, 0, 0, refuse), (ret, 0, 0, allow)]
    return b"".join(struct.pack("<HBBI", *step) for step in program), len(program)


def isolate():
    """Gives up everything but computing; returns the names of what is in force."""
    done = []
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            done.append("user nobody")
        except OSError:
            pass
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, MAX_CPU_SECONDS + 60),
        (resource.RLIMIT_NOFILE, 8),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    done.append("rlimits")
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    if libc.prctl(38, 1, 0, 0, 0) == 0:  # PR_SET_NO_NEW_PRIVS
        done.append("no_new_privs")
    if platform.machine() in AUDIT_ARCH:
        code, length = seccomp_program(*AUDIT_ARCH[platform.machine()])
        buffer = ctypes.create_string_buffer(code, len(code))
        fprog = struct.pack("<H6xQ", length, ctypes.addressof(buffer))
        if libc.prctl(22, 2, ctypes.c_char_p(fprog), 0, 0) == 0:  # PR_SET_SECCOMP, filter
            done.append("seccomp")
    if "seccomp" not in done:
        if libc.unshare(0x50000000) == 0:  # CLONE_NEWUSER | CLONE_NEWNET
            done.append("no network")
    return done


FIXED = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")


def render(environment, templates, options, source, messages, tools, extra):
    key = options["template"]
    if source:
        if options["forget"]:
            templates.clear()
        try:
            templates[key] = environment.from_string(source.decode())
        except Exception as error:
            templates[key] = error
    template = templates[key]
    if isinstance(template, Exception):
        raise template
    context = {"documents": None}
    context.update(json.loads(extra) if extra else {})
    for name in FIXED:
        if name in context:
            raise TemplateRaised(f"chat_template_kwargs must not set {name}")
    context["messages"] = json.loads(messages)
    context["tools"] = json.loads(tools) if tools else None
    context["add_generation_prompt"] = options["add_generation_prompt"]
    context["bos_token"] = options["bos_token"]
    context["eos_token"] = options["eos_token"]
    room = 4 * (len(messages) + len(tools) + len(extra)) + (1 << 20)
    parts = []
    for part in template.generate(context):
        room -= len(part)
        if room < 0:
            raise TemplateRaised("the rendered chat is far longer than its messages")
        parts.append(part)
    return "".join(parts)


def describe(jinja2, error):
    """What is told of an error: never a traceback."""
    exceptions = jinja2.exceptions
    if isinstance(error, TemplateRaised):
        return {"kind": "raised", "message": str(error)}
    if isinstance(error, exceptions.TemplateSyntaxError):
        return {"kind": "failed", "message": f"line {error.lineno}: {error.message}"}
    if isinstance(error, MemoryError):
        return {"kind": "failed", "message": "out of memory", "recycle": True}
    text = str(error)
    if not isinstance(error, exceptions.TemplateError):
        text = f"{type(error).__name__}: {text}"
    return {"kind": "failed", "message": text[:2000]}


try:
    import jinja2
    import jinja2.debug  # loaded on the first error otherwise, when no file can be opened any more
    import jinja2.sandbox
except ImportError as error:
    reply({"kind": "unavailable", "message": f"Jinja2 cannot be loaded: {error}"})
    os._exit(1)


class TemplateRaised(jinja2.exceptions.TemplateError):
    """An error whose text is meant for the client."""


def main():
    global now
    now = datetime.datetime(2000, 1, 1)
    environment = make_environment(jinja2)
    problem = check_jinja2(jinja2, environment)
    if problem:
        reply({"kind": "unavailable", "message": problem})
        os._exit(1)
    for warm_up in (  # whatever is loaded on first use is loaded now
        "{% for m in [1] %}{{ m | tojson(indent=2) }}{% endfor %}{{ strftime_now('%d %b %Y') }}",
        "{{ none.x }}",
        "{{ raise_exception('x') }}",
        "{% if %}",
        r"{{ '\N{BULLET}' }}",
    ):
        try:
            environment.from_string(warm_up).render()
        except Exception as error:
            describe(jinja2, error)
    reply({"ok": True, "jinja2": jinja2.__version__, "isolation": ", ".join(isolate())})

    templates = {}
    renders = 0
    while True:
        lengths = struct.unpack("<5I", read_exactly(20))
        options, source, messages, tools, extra = (read_exactly(n) for n in lengths)
        # Should the daemon be gone, nobody else ends a template that runs forever.
        options = json.loads(options)
        signal.setitimer(signal.ITIMER_REAL, options["backstop_seconds"])
        now = datetime.datetime.fromisoformat(options["now"])
        text = ""
        try:
            text = render(environment, templates, options, source, messages, tools, extra)
            header = {"ok": True}
        except Exception as error:
            header = describe(jinja2, error)
        signal.setitimer(signal.ITIMER_REAL, 0)
        renders += 1
        if renders >= MAX_RENDERS or time.process_time() > MAX_CPU_SECONDS:
            header["recycle"] = True
        reply(header, text)


main()
