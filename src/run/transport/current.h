// The processes to which this one belongs.
#pragma once

#include "run/world.h"

namespace tessera::run {

/// Makes world() another one until it goes out of scope. Not for several threads at once.
class CurrentWorld {
 public:
  explicit CurrentWorld(const World& now) : before_(world()) { set_world(now); }
  ~CurrentWorld() { set_world(before_); }
  CurrentWorld(const CurrentWorld&) = delete;
  CurrentWorld& operator=(const CurrentWorld&) = delete;

 private:
  World before_;
};

void set_num_sharing_cores(int count);

/// A barrier, so that no process ends successfully while another one fails.
void meet();

}  // namespace tessera::run
