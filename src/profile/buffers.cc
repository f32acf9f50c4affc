#include "profile/buffers.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "ops/control/mpmd.h"

namespace tessera::profile {

namespace {

using protozero::pbf_writer;
using run::HeldBytes;

class Assignment {
 public:
  Assignment(const Computation& entry, const std::map<ir::ValueId, BufferPlace>& places,
             const std::string& computation, const std::map<std::int64_t, std::string>& names)
      : entry_(entry), places_(places), computation_(computation), names_(names) {}

  std::string write() {
    const std::vector<std::int64_t>& peaks = entry_.executable->group_peak_bytes;
    group_ = peaks.empty()
                 ? 0
                 : static_cast<int>(std::max_element(peaks.begin(), peaks.end()) - peaks.begin());
    for (const HeldBytes& held : entry_.executable->held) {
      if (held.group != group_ || held.bytes == 0) continue;
      const BufferPlace* const place = place_of(held);
      if (place == nullptr) continue;
      (held.is_port ? ports_ : arena_).push_back({&held, place, ++num_buffers_});
    }
    for (const auto* list : {&ports_, &arena_}) {
      for (const Held& held : *list) add_buffer(held);
    }
    std::int64_t number = 0;
    for (const Held& held : ports_) add_port(held, number++);
    add_arena(number);
    return std::move(data_);
  }

 private:
  struct Held {
    const HeldBytes* bytes;
    const BufferPlace* place;
    std::int64_t id;
  };

  /// Scratch memory belongs to no value, so it is shown at the instruction that uses it.
  const BufferPlace* place_of(const HeldBytes& held) const {
    if (held.value != HeldBytes::kScratch) {
      const auto found = places_.find(held.value);
      return found == places_.end() ? nullptr : &found->second;
    }
    const bool is_grouped = !entry_.executable->group_peak_bytes.empty();
    const std::vector<std::uint32_t> equations =
        is_grouped ? std::vector<std::uint32_t>{static_cast<std::uint32_t>(held.first)}
                   : entry_.executable->instructions[held.first].equations;
    for (const std::uint32_t index : equations) {
      for (const ir::ValueId id : entry_.source->equations[index].results) {
        if (const auto found = places_.find(id); found != places_.end()) return &found->second;
      }
    }
    return nullptr;
  }

  void add_buffer(const Held& held) {
    pbf_writer buffer(writer_, 1);
    buffer.add_int64(1, held.id);
    buffer.add_int64(2, held.bytes->bytes);
    pbf_writer place(buffer, 3);
    const std::vector<std::int64_t>& element = held.place->element;
    if (!element.empty()) place.add_packed_int64(3, element.begin(), element.end());
    place.add_int64(4, held.place->instruction);
  }

  void add_port(const Held& held, std::int64_t number) {
    const std::vector<ir::ValueId>& inputs = entry_.source->inputs;
    const auto input = std::find(inputs.begin(), inputs.end(), held.bytes->value);
    pbf_writer allocation(writer_, 3);
    allocation.add_int64(1, number);
    allocation.add_int64(2, held.bytes->bytes);
    if (input != inputs.end()) {
      allocation.add_bool(5, true);
      allocation.add_int64(6, input - inputs.begin());
    } else {
      allocation.add_bool(7, true);
    }
    add_assigned(allocation, held);
  }

  static void add_assigned(pbf_writer& allocation, const Held& held) {
    pbf_writer assigned(allocation, 9);
    assigned.add_int64(1, held.id);
    assigned.add_int64(3, held.bytes->bytes);
  }

  void add_arena(std::int64_t number) {
    if (arena_.empty()) return;
    pbf_writer allocation(writer_, 3);
    allocation.add_int64(1, number);
    allocation.add_int64(2, entry_.executable->device_arena_bytes);
    for (const Held& held : arena_) add_assigned(allocation, held);
    allocation.commit();
    pbf_writer trace(writer_, 4);
    std::multimap<std::size_t, const Held*> starts;
    std::multimap<std::size_t, const Held*> ends;
    for (const Held& held : arena_) {
      starts.emplace(held.bytes->first, &held);
      ends.emplace(held.bytes->last, &held);
    }
    auto end = ends.begin();
    for (const auto& [step, held] : starts) {
      for (; end != ends.end() && end->first < step; ++end) add_event(trace, 1, *end->second);
      add_event(trace, 0, *held);
    }
    for (; end != ends.end(); ++end) add_event(trace, 1, *end->second);
    trace.add_bool(2, true);
    trace.add_int64(3, number);
  }

  /// `kind`: 0 when the buffer is allocated, 1 when it is freed.
  void add_event(pbf_writer& trace, int kind, const Held& held) const {
    pbf_writer event(trace, 1);
    event.add_enum(1, kind);
    event.add_int64(2, held.id);
    event.add_string(3, computation_);
    event.add_string(4, names_.at(held.place->instruction));
  }

  const Computation& entry_;
  const std::map<ir::ValueId, BufferPlace>& places_;
  const std::string& computation_;
  const std::map<std::int64_t, std::string>& names_;
  int group_ = 0;
  std::vector<Held> ports_;
  std::vector<Held> arena_;
  std::int64_t num_buffers_ = 0;
  std::string data_;
  pbf_writer writer_{data_};
};

}  // namespace

std::string buffer_assignment(const Computation& entry,
                              const std::map<ir::ValueId, BufferPlace>& places,
                              const std::string& computation,
                              const std::map<std::int64_t, std::string>& names) {
  return Assignment(entry, places, computation, names).write();
}

}  // namespace tessera::profile
