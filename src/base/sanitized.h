// Whether this build has a sanitizer, which makes it take ten times as long to run.
#pragma once

namespace tessera {

/// Whether this is a build with AddressSanitizer or ThreadSanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

/// Whether to try this case of a test that tries all combinations in other builds.
constexpr bool is_tried(int index) { return !kIsSanitized || index % 5 == 0; }

/// The number of random cases for a test that tries `count` of them in other builds.
constexpr int num_cases(int count) { return kIsSanitized ? (count + 4) / 5 : count; }

}  // namespace tessera
