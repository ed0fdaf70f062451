"""Finds what the machine has: Debian's libraries and the installed CPython headers."""

# Link flags only: headers lie in the compiler's default search path.
_LIBRARIES = {
    "grpc": ["-lgrpc++_reflection", "-lgrpc++", "-lgrpc", "-lgpr", "-labsl_synchronization"],
    "protobuf": ["-lprotobuf"],
    "absl": ["-labsl_" + name for name in [
        "statusor",
        "status",
        "cord",
        "cordz_functions",
        "cordz_info",
        "cordz_handle",
        "cord_internal",
        "raw_hash_set",
        "hash",
        "city",
        "low_level_hash",
        "random_distributions",
        "str_format_internal",
        "strings",
        "strings_internal",
        "time",
        "time_zone",
        "int128",
        "base",
        "raw_logging_internal",
        "throw_delegate",
        "bad_optional_access",
        "bad_variant_access",
    ]],
    "yaml_cpp": ["-lyaml-cpp"],
    "spdlog": ["-lspdlog", "-lfmt"],
    "cli11": [],
    "nlohmann_json": [],
    "catch2": [],
    "prometheus": ["-lprometheus-cpp-pull", "-lprometheus-cpp-core", "-lcivetweb-cpp"],
    "systemd": ["-lsystemd"],
    "openssl": ["-lcrypto"],
    "ssl": ["-lssl", "-lcrypto"],
    "numa": ["-lnuma"],
    # Takes the place of malloc in the programs that link it.
    "mimalloc": ["-lmimalloc"],
    "uring": ["-luring"],
    "rt": ["-lrt", "-ldl", "-lpthread"],
}

_DEFINES = {
    "spdlog": ["SPDLOG_SHARED_LIB", "SPDLOG_COMPILED_LIB", "SPDLOG_FMT_EXTERNAL"],
}

def _system_library_impl(ctx):
    lines = ['package(default_visibility = ["//visibility:public"])']
    for name, linkopts in _LIBRARIES.items():
        lines.append("cc_library(name = %r, linkopts = %r, defines = %r)" % (
            name,
            linkopts,
            _DEFINES.get(name, []),
        ))
    ctx.file("BUILD", "\n".join(lines) + "\n")

system_library = repository_rule(implementation = _system_library_impl, local = True)

# CPython versions that extension modules are built for, where their headers are present.
PYTHON_VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]

def _python_headers_impl(ctx):
    lines = ['package(default_visibility = ["//visibility:public"])']
    found = []
    for version in PYTHON_VERSIONS:
        script = ("for d in /usr/include/python{v} \"$HOME\"/.pyenv/versions/{v}.*/include/python{v} " +
                  "/usr/local/include/python{v}; do [ -e \"$d/Python.h\" ] && readlink -f \"$d\" && break; done; true")
        result = ctx.execute(["sh", "-c", script.format(v = version)])
        path = result.stdout.strip()
        if not path:
            continue
        found.append(version)
        tag = "cp" + version.replace(".", "")
        ctx.symlink(path, tag)
        lines.append("cc_library(name = %r, hdrs = glob([%r]), includes = [%r])" % (tag, tag + "/**/*.h", tag))
    ctx.file("BUILD", "\n".join(lines) + "\n")
    machine = ctx.execute(["uname", "-m"]).stdout.strip()
    ctx.file("versions.bzl", "FOUND = %r\nARCHITECTURE = %r\n" % (found, machine))

python_headers = repository_rule(implementation = _python_headers_impl, local = True, environ = ["HOME"])
