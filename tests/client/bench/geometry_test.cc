#include "client/bench/geometry.h"

#include <catch2/catch.hpp>

#include "client/bench/text.h"

namespace hixld::bench {
namespace {

KvShape Shape(const std::string& model, uint64_t tokens, uint64_t block_tokens, uint64_t ranks) {
  const auto found = FindModel(model);
  REQUIRE(found.ok());
  const auto shape = ShapeOf(*found, tokens, block_tokens, ranks);
  REQUIRE(shape.ok());
  return *shape;
}

TEST_CASE("the cache of Llama 3 8B takes 128 KiB per token") {
  const KvShape shape = Shape("llama-3-8b", 4096, 16, 1);
  CHECK(shape.tensors == 64);
  CHECK(shape.blocks_per_tensor == 256);
  CHECK(shape.block_bytes == 32 * 1024);
  CHECK(shape.bytes() == 4096ull * 128 * 1024);
}

TEST_CASE("ranks share the heads, and have at least one each") {
  CHECK(Shape("llama-3-70b", 16, 16, 8).block_bytes == 16 * 128 * 2);
  CHECK(Shape("llama-3-70b", 16, 16, 16).block_bytes == 16 * 128 * 2);
  CHECK(Shape("glm-4-9b", 16, 16, 2).block_bytes == 16 * 128 * 2);
  const auto bad = ShapeOf(*FindModel("qwen2.5-7b"), 16, 16, 3);
  REQUIRE(!bad.ok());
  CHECK(ErrorText(bad.status()).find("--tp") == 0);
}

TEST_CASE("a latent cache has one tensor per layer, whole on every rank") {
  const KvShape shape = Shape("deepseek-v3", 1024, 128, 8);
  CHECK(shape.tensors == 61);
  CHECK(shape.block_bytes == 128 * 576 * 2);
  CHECK(shape.bytes() == 1024ull * 61 * 576 * 2);
}

TEST_CASE("the last block may be begun only") {
  CHECK(Shape("mistral-7b", 1, 16, 1).blocks_per_tensor == 1);
  CHECK(Shape("mistral-7b", 17, 16, 1).blocks_per_tensor == 2);
}

TEST_CASE("names in any case; an unknown one lists the known") {
  CHECK(FindModel("QWEN3-32B")->layers == 64);
  const auto unknown = FindModel("gpt-5");
  REQUIRE(!unknown.ok());
  for (const ModelGeometry& model : KnownModels()) {
    CHECK(ErrorText(unknown.status()).find(model.name) != std::string::npos);
  }
}

TEST_CASE("a geometry with a zero is refused") {
  CHECK(!ShapeOf({"own", 0, 1, 1}, 1, 1, 1).ok());
  CHECK(!ShapeOf({"own", 1, 1, 1}, 0, 1, 1).ok());
  CHECK(!ShapeOf({"own", 1, 1, 1}, 1, 1, 0).ok());
}

}  // namespace
}  // namespace hixld::bench
