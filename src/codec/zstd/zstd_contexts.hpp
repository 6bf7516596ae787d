// The contexts of libzstd, one of each kind per thread. Making one costs as much as compressing several kilobytes: it
// allocates, and asks the processor what it can do, which a virtual machine answers by leaving the guest (40 us). What
// opens small files spent half of its time there.
#pragma once

#include <memory>

#include <zstd.h>

namespace bitsnap::codec {

struct FreeZstdContext {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

// The compression context of the calling thread (1.3 MB at level 3), or nullptr if there is no memory for one. The
// thread keeps it until it ends.
inline ZSTD_CCtx* zstd_compression_context() noexcept {
  thread_local std::unique_ptr<ZSTD_CCtx, FreeZstdContext> context;
  if (!context) context.reset(ZSTD_createCCtx());
  return context.get();
}

// The same for decompression. Decoding into memory at once needs no window buffer, so that it has one size for any
// frame.
inline ZSTD_DCtx* zstd_decompression_context() noexcept {
  thread_local std::unique_ptr<ZSTD_DCtx, FreeZstdContext> context;
  if (!context) context.reset(ZSTD_createDCtx());
  return context.get();
}

}  // namespace bitsnap::codec
