// "I store, then look whether the other side sleeps; it says that it sleeps, then looks at what I
// stored": at least one of the two must see the other.
#pragma once

#include <atomic>

namespace hixld {

// Stands between such a store and such a load, which are sequentially consistent themselves. On
// x86 the store is a full barrier already. On aarch64 a store-release before a load-acquire keeps
// its order by a rule of those two instructions alone, which emulators of it do not all follow
// (QEMU 7.2 does not); an explicit barrier they do.
inline void StoreLoadBarrier() {
#if !defined(__x86_64__) && !defined(__i386__)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace hixld
