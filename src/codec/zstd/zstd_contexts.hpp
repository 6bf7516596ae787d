// The contexts of libzstd, one of each kind per thread. Making one took 13 us (libzstd 1.5.4 in a virtual machine, mean
// of 500): it allocates, and asks the processor what it can do, for which the guest is left. The crash tests of the
// store, which open small files, spent two fifths of their time there.
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
