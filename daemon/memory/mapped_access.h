// Memory whose pages the daemon has mapped.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transports/memory_access.h"

namespace hixld {

class MappedAccess : public MemoryAccess {
 public:
  // `length` bytes from `data` on, valid for as long as `owner` lives.
  // `file`: where the pages lie, when clients may be given them.
  MappedAccess(std::byte* data, uint64_t length, std::shared_ptr<const void> owner,
               std::string description, std::optional<SharedFile> file = std::nullopt);

  void Read(std::vector<Slice> slices, Done done) override;
  void Write(std::vector<Slice> slices, Done done) override;
  absl::string_view description() const override { return description_; }
  std::optional<SharedFile> shared_file() const override { return file_; }

 private:
  const std::shared_ptr<const void> owner_;
  const std::string description_;
  const std::optional<SharedFile> file_;
};

}  // namespace hixld
