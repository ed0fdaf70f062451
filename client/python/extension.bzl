"""The extension module of the Python package, once for every CPython on this machine."""

load("@python_headers//:versions.bzl", "ARCHITECTURE", "FOUND")

def python_extensions(package, module, srcs, hdrs, deps, library):
    """One shared object per version: PACKAGE/MODULE.cpython-XY-ARCH-linux-gnu.so.

    Args:
      package: directory of the package, below this one.
      module: name of the module.
      srcs: sources.
      hdrs: headers that they share.
      deps: libraries with headers only.
      library: label of the shared library that the module loads; it is found at
        ../../lib of the installed package.
    """
    names = []
    for version in FOUND:
        tag = version.replace(".", "")
        name = "%s/%s.cpython-%s-%s-linux-gnu.so" % (package, module, tag, ARCHITECTURE)
        names.append(name)
        native.cc_binary(
            name = name,
            srcs = srcs + hdrs,
            additional_linker_inputs = [library],
            copts = ["-fvisibility=hidden", "-g0"],
            linkopts = [
                "$(location %s)" % library,
                "-Wl,-rpath,'$$ORIGIN/../../lib'",
            ],
            linkshared = 1,
            visibility = ["//visibility:public"],
            deps = deps + ["@python_headers//:cp" + tag],
        )
    native.filegroup(
        name = package + "_extensions",
        srcs = names,
        visibility = ["//visibility:public"],
    )
