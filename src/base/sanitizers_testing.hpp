// Whether the tests run under a sanitizer, which makes everything several times slower.
#pragma once

namespace bitsnap {

// True with AddressSanitizer or ThreadSanitizer. Tests then try a sample of many cases, and leave out what a sanitizer
// cannot change, such as sizes. The build without sanitizers runs all of it.
inline constexpr bool kHasSanitizer =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

}  // namespace bitsnap
