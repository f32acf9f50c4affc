// Host memory that devices have not read yet.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "run/pjrt/plugin.h"

namespace tessera::run::pjrt {

class Uploads {
 public:
  /// Keeps `owner` until the plugin signals `read`, which is taken over.
  void add(abi::Event* read, std::shared_ptr<const void> owner);
  /// Releases the owners of memory that has been read. The plugin's own threads never do this,
  /// because freeing a buffer calls the plugin.
  void let_go(const Plugin& plugin);

 private:
  struct Upload {
    abi::Event* read;
    std::shared_ptr<const void> owner;
  };
  std::mutex mutex_;
  std::deque<Upload> under_way_;  // in the order in which they began
};

}  // namespace tessera::run::pjrt
