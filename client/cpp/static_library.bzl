"""One archive with the objects of a library and of everything below it."""

def _static_library_impl(ctx):
    archive = ctx.actions.declare_file(ctx.attr.out)
    objects = []
    for lib in ctx.attr.deps:
        for linker_input in lib[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                if library.pic_objects:
                    objects.extend(library.pic_objects)
                elif library.objects:
                    objects.extend(library.objects)
    ctx.actions.run_shell(
        outputs = [archive],
        inputs = objects,
        # A fresh archive with a symbol table and without time stamps.
        command = "rm -f %s && ar rcsD %s %s" % (
            archive.path,
            archive.path,
            " ".join([o.path for o in objects]),
        ),
        mnemonic = "MergeArchive",
    )
    return [DefaultInfo(files = depset([archive]))]

static_library = rule(
    implementation = _static_library_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "out": attr.string(mandatory = True),
    },
    fragments = ["cpp"],
)
