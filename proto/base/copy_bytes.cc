#include "proto/base/copy_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace hixld {
namespace {

constexpr size_t kLine = 64;

#if defined(__SSE2__)

// Below this the start-up costs more than streaming saves.
constexpr size_t kMinStreamed = 4096;
constexpr size_t kPrefetchAhead = 1024;

bool Overlap(const std::byte* target, const std::byte* source, size_t length) {
  const auto t = reinterpret_cast<uintptr_t>(target);
  const auto s = reinterpret_cast<uintptr_t>(source);
  return t < s + length && s < t + length;
}

// `target` is aligned to the line, `length` a multiple of it.
void StreamLines128(std::byte* target, const std::byte* source, size_t length) {
  for (size_t i = 0; i < length; i += kLine) {
    // A prefetch beyond the end is harmless: it never faults.
    _mm_prefetch(reinterpret_cast<const char*>(source + i + kPrefetchAhead), _MM_HINT_NTA);
    const auto* from = reinterpret_cast<const __m128i*>(source + i);
    auto* to = reinterpret_cast<__m128i*>(target + i);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  // Streamed stores are ordered with nothing; whoever learns that the copy is done must see them.
  _mm_sfence();
}

// A store that fills a line need not wait for others to do so: a sixth to a third faster.
__attribute__((target("avx512f"))) void StreamLines512(std::byte* target, const std::byte* source,
                                                       size_t length) {
  for (size_t i = 0; i < length; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(source + i + kPrefetchAhead), _MM_HINT_NTA);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), _mm512_loadu_si512(source + i));
  }
  _mm_sfence();
}

void StreamBytes(std::byte* target, const std::byte* source, size_t length) {
  const size_t head = -reinterpret_cast<uintptr_t>(target) & (kLine - 1);
  memcpy(target, source, head);
  const size_t lines = (length - head) / kLine * kLine;
  static const copy_internal::StreamLines stream = copy_internal::StreamWays().back();
  stream(target + head, source + head, lines);
  memcpy(target + head + lines, source + head + lines, length - head - lines);
}

#endif

}  // namespace

std::vector<copy_internal::StreamLines> copy_internal::StreamWays() {
  std::vector<StreamLines> ways;
#if defined(__SSE2__)
  ways.push_back(StreamLines128);
  if (__builtin_cpu_supports("avx512f")) ways.push_back(StreamLines512);
#endif
  return ways;
}

void CopyBytes(std::byte* target, const std::byte* source, size_t length, bool streaming) {
#if defined(__SSE2__)
  if (streaming && length >= kMinStreamed && !Overlap(target, source, length)) {
    StreamBytes(target, source, length);
    return;
  }
#endif
  memmove(target, source, length);
}

void PrefetchBlock(const std::byte* target, const std::byte* source, size_t length) {
  constexpr size_t kLines = 4;
  const size_t bytes = std::min(length, kLines * kLine);
  for (size_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(source + i, 0);
    __builtin_prefetch(target + i, 1);
  }
}

}  // namespace hixld
