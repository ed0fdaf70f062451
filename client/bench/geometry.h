// The KV cache of a language model: how many blocks of which size a request's tokens take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hixld::bench {

// What decides the size of a model's KV cache.
struct ModelGeometry {
  std::string name;
  uint64_t layers = 0;
  // Heads that keep keys and values (grouped-query attention). 1 with a latent cache.
  uint64_t kv_heads = 0;
  // Elements per token and head. With a latent cache (MLA): of the one latent vector.
  uint64_t head_size = 0;
  uint64_t dtype_bytes = 2;
  // Multi-head latent attention: one tensor per layer, whole on every rank.
  bool latent = false;
};

// Public models, from their published configurations (16-bit caches).
const std::vector<ModelGeometry>& KnownModels();
// By name, upper or lower case; else PARAM_INVALID with all known names.
absl::StatusOr<ModelGeometry> FindModel(absl::string_view name);

// The blocks that move when a request's cache moves.
struct KvShape {
  // Separate tensors: keys and values of each layer, or one latent tensor per layer.
  uint64_t tensors = 0;
  // Of one tensor.
  uint64_t blocks_per_tensor = 0;
  uint64_t block_bytes = 0;

  uint64_t blocks() const { return tensors * blocks_per_tensor; }
  uint64_t bytes() const { return blocks() * block_bytes; }
};

// The cache of `tokens` tokens on one of `tensor_parallel` ranks. With fewer KV heads than ranks
// each rank keeps one. PARAM_INVALID: heads and ranks do not divide, or a value is 0.
absl::StatusOr<KvShape> ShapeOf(const ModelGeometry& model, uint64_t tokens, uint64_t block_tokens,
                                uint64_t tensor_parallel);

}  // namespace hixld::bench
