// The transport of this process.
#pragma once

#include <utility>

#include "run/transport/transport.h"

namespace tessera::run {

/// Makes a transport that of this process (`transport()`) until it goes out of scope. Not for
/// several threads at once.
class CurrentTransport {
 public:
  CurrentTransport(Transport& transport, int devices_per_group);
  ~CurrentTransport();
  CurrentTransport(const CurrentTransport&) = delete;
  CurrentTransport& operator=(const CurrentTransport&) = delete;

 private:
  Transport* before_;
  int group_size_before_;
};

void set_num_sharing_cores(int count);

/// A barrier, so that no process ends successfully while another one fails.
void meet();

}  // namespace tessera::run
