#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <list>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include <tessera/data.h>
#include <tessera/error.h>
#include <tessera/shardings.h>

namespace tessera::data {

namespace {

constexpr std::size_t kAhead = 2;    // batches that are read before next() asks for them
constexpr std::int64_t kAtOnce = 8;  // records that a thread takes at a time
constexpr int kMostWorkers = 1024;
constexpr std::int64_t kEndlessSize = std::numeric_limits<std::int64_t>::max();

/// A batch whose records are being read. `place` is the position of its first record.
struct Making {
  std::int64_t place;
  std::int64_t size;                 // records, of all processes
  std::vector<std::int64_t> rows;    // the records that this process reads, ascending
  std::vector<Record> records = {};  // in the order of `rows`
  std::int64_t taken = 0;            // number of records that threads have taken, read or not
  std::int64_t read = 0;
  std::int64_t bad = std::numeric_limits<std::int64_t>::max();  // first one that failed, of `rows`
  std::exception_ptr error = nullptr;                           // of that record
};

std::int64_t num_rows(const Making& batch) { return std::ssize(batch.rows); }

/// The records of a batch that this process holds. One at least: it has the shapes of all.
std::vector<std::int64_t> rows_of(std::int64_t size, const std::optional<NamedSharding>& sharding) {
  std::vector<std::int64_t> rows;
  if (!sharding) {
    rows.resize(static_cast<std::size_t>(size));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  const std::vector<SpecEntry>& entries = sharding->spec.entries();
  NamedSharding of_rows{sharding->mesh, {}};
  if (!entries.empty()) of_rows.spec = PartitionSpec(std::vector<SpecEntry>{entries[0]});
  const auto note = [&](const std::vector<IndexRange>& index, std::span<std::byte> elements) {
    for (std::int64_t i = index[0].start; i < index[0].limit; ++i) rows.push_back(i);
    std::fill(elements.begin(), elements.end(), std::byte{0});
  };
  make_array_from_callback({DType::i32, {size}}, of_rows, note);
  if (rows.empty()) rows.push_back(0);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::string type_text(const HostArray& field) {
  static constexpr std::array<const char*, 3> kNames = {"u8", "i32", "f32"};
  return kNames[field.values.index()] + to_string(field.shape);
}

/// Throws UserError unless each field has the elements that its shape says.
void check_sizes(const Making& batch) {
  for (std::size_t i = 0; i < batch.records.size(); ++i) {
    for (const HostArray& field : batch.records[i]) {
      const auto count = static_cast<std::int64_t>(
          std::visit([](const auto& values) { return values.size(); }, field.values));
      const bool is_negative = std::ranges::any_of(field.shape, [](auto size) { return size < 0; });
      if (!is_negative && count == num_elements(field.shape)) continue;
      throw UserError(
          {.what = "batch: a field of a record has the wrong number of elements for its shape",
           .found = type_text(field) + " with " + std::to_string(count) + " elements at position " +
                    std::to_string(batch.place + batch.rows[i]) + " of the stream",
           .wanted = "as many elements as the sizes of the shape multiply to",
           .cure = "set shape and values together in the source or in data::map"});
    }
  }
}

/// Throws UserError unless all records have the fields of the first one.
void check_alike(const Making& batch) {
  const std::vector<Record>& records = batch.records;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const bool is_same =
        std::equal(records[i].begin(), records[i].end(), records[0].begin(), records[0].end(),
                   [](const HostArray& a, const HostArray& b) {
                     return a.shape == b.shape && a.values.index() == b.values.index();
                   });
    if (is_same) continue;
    const auto text = [&](std::size_t number) {
      std::string types;
      for (const HostArray& x : records[number]) {
        types += (types.empty() ? "" : ", ") + type_text(x);
      }
      return (types.empty() ? "no fields" : types) + " at position " +
             std::to_string(batch.place + batch.rows[number]);
    };
    throw UserError({.what = "batch: records of different shapes cannot be stacked",
                     .found = text(0) + " of the stream, " + text(i),
                     .wanted = "the same fields, types and shapes in each record",
                     .cure = "give them the same shape first: dataset | data::map(...)"});
  }
}

/// Copies a box of a row-major array, whose elements become those of `to`, one after the other.
template <typename E, typename T>
E* copy_box(const T* from, std::span<const std::int64_t> shape, std::span<const IndexRange> box,
            E* to) {
  if (shape.empty()) {
    *to = static_cast<E>(*from);
    return to + 1;
  }
  std::int64_t stride = 1;
  for (const std::int64_t size : shape.subspan(1)) stride *= size;
  if (shape.size() == 1) return std::copy(from + box[0].start, from + box[0].limit, to);
  for (std::int64_t i = box[0].start; i < box[0].limit; ++i) {
    to = copy_box(from + i * stride, shape.subspan(1), box.subspan(1), to);
  }
  return to;
}

/// Stacks field number `field` of all records, with elements of type T, into an array of E.
template <typename E, typename T>
Array stacked_as(const Making& batch, std::size_t field, const NamedSharding& sharding,
                 const std::source_location& where) {
  const HostArray& first = batch.records[0][field];
  Shape shape = first.shape;
  shape.insert(shape.begin(), batch.size);
  const auto fill = [&](const std::vector<IndexRange>& index, std::span<std::byte> elements) {
    const std::span<const IndexRange> box = index;
    E* to = reinterpret_cast<E*>(elements.data());
    auto row = std::lower_bound(batch.rows.begin(), batch.rows.end(), box[0].start);
    for (std::int64_t i = box[0].start; i < box[0].limit; ++i, ++row) {
      const auto& record = batch.records[static_cast<std::size_t>(row - batch.rows.begin())];
      const auto& from = std::get<std::vector<T>>(record[field].values);
      to = copy_box(from.data(), first.shape, box.subspan(1), to);
    }
  };
  constexpr DType kType = std::is_same_v<E, float> ? DType::f32 : DType::i32;
  return make_array_from_callback({kType, std::move(shape)}, sharding, fill, where);
}

std::vector<Array> stacked(const Making& batch, const std::optional<NamedSharding>& asked,
                           const std::source_location& where) {
  check_sizes(batch);
  check_alike(batch);
  const NamedSharding sharding = asked.value_or(NamedSharding{current_mesh(), {}});
  std::vector<Array> fields;
  for (std::size_t i = 0; i < batch.records[0].size(); ++i) {
    const std::size_t type = batch.records[0][i].values.index();
    fields.push_back(type == 0   ? stacked_as<std::int32_t, std::uint8_t>(batch, i, sharding, where)
                     : type == 1 ? stacked_as<std::int32_t, std::int32_t>(batch, i, sharding, where)
                                 : stacked_as<float, float>(batch, i, sharding, where));
  }
  return fields;
}

}  // namespace

/// Batches are begun in the order of the stream. Several threads read their records: the workers
/// and the thread that calls next(). Each takes a few records at a time from the first batch that
/// has some left.
struct Batches::State {
  State(const Dataset& from, const BatchOptions& how, std::int64_t start,
        std::optional<NamedSharding> over)
      : dataset(from),
        options(how),
        sharding(std::move(over)),
        rows(rows_of(std::min(how.size, from.size()), sharding)),
        offset(start < from.size() ? start % how.size : 0),
        next_place(start),
        place(start) {
    const std::int64_t rest = std::max<std::int64_t>(dataset.size() - start, 0) % options.size;
    const bool is_cut = options.remainder == Remainder::drop && dataset.size() != kEndlessSize;
    end = is_cut ? dataset.size() - rest : dataset.size();
    begin_batches();
    for (int i = 0; i < options.workers; ++i) {
      try {
        threads.emplace_back([this] { work(); });
      } catch (const std::exception&) {
        break;  // no more threads can be started: the thread that calls next() reads the rest
      }
    }
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      is_stopping = true;
    }
    has_work.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Begins batches until there are the next one and kAhead more.
  void begin_batches() {
    while (batches.size() < 1 + kAhead && next_place < end) {
      const std::int64_t size = std::min(options.size, end - next_place);
      Making batch{.place = next_place, .size = size, .rows = rows};
      if (size != std::min(options.size, dataset.size())) batch.rows = rows_of(size, sharding);
      batch.records.resize(batch.rows.size());
      batches.push_back(std::move(batch));
      next_place += size;
    }
  }

  /// The first batch with records that no thread has taken.
  Making* unread() {
    for (Making& batch : batches) {
      if (batch.taken < num_rows(batch)) return &batch;
    }
    return nullptr;
  }

  /// Reads a few records of a batch. Releases the lock while it reads.
  void read_some(Making& batch, std::unique_lock<std::mutex>& lock) {
    const std::int64_t first = batch.taken;
    const std::int64_t last = std::min(first + kAtOnce, num_rows(batch));
    batch.taken = last;
    lock.unlock();
    std::exception_ptr error;
    std::int64_t i = first;
    try {
      for (; i < last; ++i) {
        const auto number = static_cast<std::size_t>(i);
        batch.records[number] = dataset.read(batch.place + batch.rows[number]);
      }
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && i < batch.bad) {
      batch.bad = i;
      batch.error = error;
    }
    batch.read += last - first;
    if (batch.read == num_rows(batch)) is_read.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (!is_stopping) {
      if (Making* batch = unread()) {
        read_some(*batch, lock);
      } else {
        has_work.wait(lock);
      }
    }
  }

  std::optional<std::vector<Array>> next() {
    if (failed) std::rethrow_exception(failed);
    std::unique_lock lock(mutex);
    if (batches.empty()) return std::nullopt;
    Making& batch = batches.front();
    while (batch.read < num_rows(batch)) {
      if (batch.taken < num_rows(batch)) {
        read_some(batch, lock);
      } else {
        is_read.wait(lock);
      }
    }
    const Making done = std::move(batch);
    batches.pop_front();
    try {
      if (!done.error) begin_batches();
      lock.unlock();
      has_work.notify_all();
      if (done.error) std::rethrow_exception(done.error);
      std::vector<Array> arrays = stacked(done, sharding, options.where);
      place = done.place + done.size;
      return arrays;
    } catch (...) {
      failed = std::current_exception();
      throw;
    }
  }

  const Dataset dataset;
  const BatchOptions options;
  const std::optional<NamedSharding> sharding;
  const std::vector<std::int64_t> rows;  // of a batch of full size
  // Positions in the stream, in records. Batches begin at `offset` plus multiples of their size:
  // a stream that was saved with another size of batches may continue anywhere.
  const std::int64_t offset;
  std::int64_t end = 0;
  std::int64_t next_place;  // of the batch that is begun next
  std::int64_t place;       // of the batch that next() returns next
  std::exception_ptr failed;
  std::mutex mutex;  // guards next_place and what follows
  std::condition_variable has_work, is_read;
  std::list<Making> batches;
  bool is_stopping = false;
  std::vector<std::thread> threads;
};

BatchOptions batch(std::int64_t size, Remainder remainder, int workers,
                   std::source_location where) {
  if (size < 1 || workers < 0 || workers > kMostWorkers) {
    throw UserError(
        {.what = "batch: the size or the number of threads is not valid",
         .where = Span(where),
         .found = "size " + std::to_string(size) + ", " + std::to_string(workers) + " workers",
         .wanted = "a size of at least 1 and 0 to 1024 workers",
         .cure = "write for example data::batch(128)"});
  }
  return {.size = size, .remainder = remainder, .workers = workers, .where = where};
}

Batches operator|(const Dataset& dataset, const BatchOptions& options) {
  return {dataset, options};
}

Batches::Batches(const Dataset& dataset, const BatchOptions& options) {
  if (dataset.size() < 1 ||
      (options.remainder == Remainder::drop && dataset.size() < options.size)) {
    throw UserError({.what = "batch: the batch is larger than the data",
                     .where = Span(options.where),
                     .found = "batches of " + std::to_string(options.size) + " from " +
                              std::to_string(dataset.size()) + " records",
                     .wanted = "at least one whole batch",
                     .cure = "use a smaller batch, more epochs, or keep the remainder"});
  }
  state_ = std::make_unique<State>(dataset, options, 0, std::nullopt);
}

Batches::Batches(Batches&& other) noexcept = default;
Batches& Batches::operator=(Batches&& other) noexcept = default;
Batches::~Batches() = default;

std::int64_t Batches::size() const {
  if (state_->end == kEndlessSize) return kEndlessSize;
  const std::int64_t size = state_->options.size;
  return (state_->end - state_->offset + size - 1) / size;
}

std::optional<std::vector<Array>> Batches::next() { return state_->next(); }

void Batches::place(NamedSharding sharding) {
  state_ =
      std::make_unique<State>(state_->dataset, state_->options, state_->place, std::move(sharding));
}

Position Batches::position() const {
  return {.place = state_->place, .order = state_->dataset.order()};
}

void Batches::seek(const Position& position, std::source_location where) {
  const Order& mine = state_->dataset.order();
  Order theirs = position.order;
  theirs.epochs = mine.epochs;  // a run may go on for longer
  if (theirs != mine) {
    const auto text = [](const Order& o) {
      return std::string(o.is_shuffled ? "" : "not shuffled, ") + "seed " + std::to_string(o.seed) +
             ", shard " + std::to_string(o.shard) + " of " + std::to_string(o.num_shards) + ", " +
             std::to_string(o.num_records) + " records";
    };
    throw UserError({.what = "seek: the position belongs to another stream",
                     .where = Span(where),
                     .found = text(theirs),
                     .wanted = text(mine),
                     .cure = "use the data and the flags of the run that saved it"});
  }
  if (position.place < 0 || position.place > mine.size()) {
    throw UserError({.what = "seek: the stream ends before the position",
                     .where = Span(where),
                     .found = "position " + std::to_string(position.place),
                     .wanted = "at most " + std::to_string(mine.size()),
                     .cure = "repeat the data at least as often as the run that saved it"});
  }
  state_ =
      std::make_unique<State>(state_->dataset, state_->options, position.place, state_->sharding);
}

}  // namespace tessera::data
