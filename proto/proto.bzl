"""C++ code from .proto files, made by the system's protoc."""

def cc_proto(name, srcs, deps = [], grpc = False):
    """One cc_library with the generated messages, and services when grpc is set.

    Args:
      name: the library's name; the .proto files are also exported as NAME_srcs.
      srcs: .proto files of this package.
      deps: other cc_proto libraries whose files are imported.
      grpc: also generate services.
    """
    outs = []
    headers = []
    for src in srcs:
        base = src[:-len(".proto")]
        headers.append(base + ".pb.h")
        outs.append(base + ".pb.cc")
        if grpc:
            headers.append(base + ".grpc.pb.h")
            outs.append(base + ".grpc.pb.cc")
    native.filegroup(
        name = name + "_srcs",
        srcs = srcs + [dep + "_srcs" for dep in deps],
        visibility = ["//visibility:public"],
    )
    plugin = " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin" if grpc else ""
    native.genrule(
        name = name + "_gen",
        srcs = srcs + [dep + "_srcs" for dep in deps],
        outs = outs + headers,
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR)" + plugin + " " +
              " ".join(["$(location %s)" % src for src in srcs]),
    )
    native.cc_library(
        name = name,
        srcs = outs,
        hdrs = headers,
        copts = ["-Wno-error"],
        visibility = ["//visibility:public"],
        deps = deps + ["@system//:protobuf"] + (["@system//:grpc"] if grpc else []),
    )
