// Anonymous files that back shared memory.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/fd.h"

namespace hixld {

// Creates a memfd of `size` bytes (> 0) that can neither shrink nor grow nor be re-sealed.
// With `huge_pages`, from 2 MiB huge pages, and `size` must be a multiple of that; no free huge
// pages is RESOURCE_EXHAUSTED.
absl::StatusOr<UniqueFd> CreateSealedMemfd(absl::string_view name, size_t size,
                                           bool huge_pages = false);

// Checks a descriptor that came from another process: a memfd on tmpfs (no huge pages: their
// reservation can be taken away behind a mapping), sealed against shrinking, and at least
// `min_size` bytes long. Otherwise PARAM_INVALID that says what it is instead.
// Returns the file's size in bytes.
absl::StatusOr<size_t> CheckSharedMemfd(int fd, size_t min_size);

// Maps bytes [offset, offset + size) of `fd` shared, readable, and writable when `writable`.
// `offset` must be a multiple of the page size.
absl::StatusOr<Mapping> MapShared(int fd, size_t offset, size_t size, bool writable = true);

}  // namespace hixld
