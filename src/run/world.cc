#include "run/world.h"

#include "run/transport/transport.h"

namespace tessera::run {

namespace {

World of_run;
thread_local const World* t_own = nullptr;

}  // namespace

int World::rank() const { return transport == nullptr ? 0 : transport->rank(); }

int World::size() const { return transport == nullptr ? 1 : transport->size(); }

int World::processes_of(const Mesh& mesh) const {
  const bool is_of_group = num_groups > 1 && mesh.num_devices() == devices_per_group;
  return is_of_group ? processes_per_group() : size();
}

bool World::can_hold(const Mesh& mesh) const {
  if (transport == nullptr || mesh.axes().empty()) return true;
  if (num_groups > 1) {
    const std::int64_t devices = mesh.num_devices();
    return devices == devices_per_group || devices == num_groups * devices_per_group;
  }
  return mesh.num_devices() % size() == 0;
}

const World& world() { return t_own != nullptr ? *t_own : of_run; }

void set_world(const World& world) { of_run = world; }

void set_world_of_thread(const World* own) { t_own = own; }

}  // namespace tessera::run
