#include "client/bench/geometry.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status.h"

namespace hixld::bench {

const std::vector<ModelGeometry>& KnownModels() {
  static const std::vector<ModelGeometry>& models = *new std::vector<ModelGeometry>{
      {"llama-2-7b", 32, 32, 128},
      {"llama-3-8b", 32, 8, 128},
      {"llama-3-70b", 80, 8, 128},
      {"llama-3.1-405b", 126, 8, 128},
      {"qwen2.5-7b", 28, 4, 128},
      {"qwen2.5-14b", 48, 8, 128},
      {"qwen2.5-32b", 64, 8, 128},
      {"qwen2.5-72b", 80, 8, 128},
      {"qwen3-8b", 36, 8, 128},
      {"qwen3-32b", 64, 8, 128},
      {"qwen3-30b-a3b", 48, 4, 128},
      {"qwen3-235b-a22b", 94, 4, 128},
      {"mistral-7b", 32, 8, 128},
      {"mixtral-8x7b", 32, 8, 128},
      {"glm-4-9b", 40, 2, 128},
      // 512 elements of the compressed cache and 64 of the rotary key, per token and layer.
      {"deepseek-v2", 60, 1, 576, 2, true},
      {"deepseek-v3", 61, 1, 576, 2, true},
  };
  return models;
}

absl::StatusOr<ModelGeometry> FindModel(absl::string_view name) {
  std::vector<std::string> names;
  for (const ModelGeometry& model : KnownModels()) {
    if (absl::EqualsIgnoreCase(model.name, name)) return model;
    names.push_back(model.name);
  }
  return ParamInvalid(absl::StrCat("--model: \"", name,
                                   "\" is not known; for other models give "
                                   "--layers, --heads and --head-size"),
                      {.object = "--model", .allowed = absl::StrJoin(names, " | ")});
}

absl::StatusOr<KvShape> ShapeOf(const ModelGeometry& model, uint64_t tokens, uint64_t block_tokens,
                                uint64_t tensor_parallel) {
  if (model.layers == 0 || model.kv_heads == 0 || model.head_size == 0 || model.dtype_bytes == 0 ||
      tokens == 0 || block_tokens == 0 || tensor_parallel == 0) {
    return ParamInvalid("the geometry of a KV cache has no zero in it", {.object = model.name});
  }
  uint64_t heads = model.kv_heads;
  if (!model.latent) {
    const uint64_t most = std::max(heads, tensor_parallel);
    const uint64_t least = std::min(heads, tensor_parallel);
    if (most % least != 0) {
      return ParamInvalid(
          absl::StrCat("--tp: ", heads, " KV heads cannot be shared by ", tensor_parallel,
                       " ranks"),
          {.object = model.name, .allowed = "a divisor or a multiple of the number of KV heads"});
    }
    heads = std::max<uint64_t>(1, heads / tensor_parallel);
  }
  KvShape shape;
  shape.tensors = model.latent ? model.layers : 2 * model.layers;
  shape.blocks_per_tensor = (tokens + block_tokens - 1) / block_tokens;
  shape.block_bytes = block_tokens * heads * model.head_size * model.dtype_bytes;
  return shape;
}

}  // namespace hixld::bench
