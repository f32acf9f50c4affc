// Threads with a chosen amount of stack.
#pragma once

#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <pthread.h>

namespace tessera::testing {

/// Runs `body` on a thread with a stack of this size.
inline void with_stack(std::size_t bytes, const std::function<void()>& body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  const auto run = [](void* function) -> void* {
    (*static_cast<const std::function<void()>*>(function))();
    return nullptr;
  };
  pthread_t thread = {};
  auto* const function = const_cast<std::function<void()>*>(&body);
  ASSERT_EQ(pthread_create(&thread, &attributes, run, function), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace tessera::testing
