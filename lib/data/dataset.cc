#include <tessera/data.h>
#include <tessera/error.h>

namespace tessera::data {

namespace {

std::int64_t checked_size(const std::shared_ptr<const Source>& source) {
  const std::int64_t size = source == nullptr ? -1 : source->size();
  if (size >= 0) return size;
  throw UserError({.what = "Dataset: the source has no valid number of records",
                   .found = source == nullptr ? "no source" : std::to_string(size),
                   .wanted = "a source whose size() is 0 or more",
                   .cure = "for an endless stream, repeat a source: dataset | data::repeat()"});
}

}  // namespace

Dataset::Dataset(const std::shared_ptr<const Source>& source)
    : Dataset(source, Order{.num_records = checked_size(source)}) {}

Dataset::Dataset(std::shared_ptr<const Source> source, const Order& order)
    : source_(std::move(source)), order_(order) {}

Record Dataset::read(std::int64_t place, std::source_location where) const {
  const std::int64_t record = order_.record(place, where);
  RecordRandom random(order_.random_key(place));
  return source_->read(record, random);
}

namespace {

class Changed final : public Source {
 public:
  Changed(std::shared_ptr<const Source> from, std::shared_ptr<const Change> change)
      : from_(std::move(from)), change_(std::move(change)) {}
  std::int64_t size() const override { return from_->size(); }
  Record read(std::int64_t record, RecordRandom& random) const override {
    return change_->apply(from_->read(record, random), random);
  }

 private:
  std::shared_ptr<const Source> from_;
  std::shared_ptr<const Change> change_;
};

class Zipped final : public Source {
 public:
  Zipped(std::shared_ptr<const Source> first, std::shared_ptr<const Source> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  std::int64_t size() const override { return first_->size(); }
  Record read(std::int64_t record, RecordRandom& random) const override {
    Record fields = first_->read(record, random);
    for (HostArray& field : second_->read(record, random)) fields.push_back(std::move(field));
    return fields;
  }

 private:
  std::shared_ptr<const Source> first_, second_;
};

class Sequences final : public Source {
 public:
  explicit Sequences(Tokens tokens) : tokens_(std::move(tokens)) {}
  std::int64_t size() const override { return tokens_.num_sequences(); }
  Record read(std::int64_t record, RecordRandom& /*random*/) const override {
    const auto begin = tokens_.values().begin() + record * tokens_.length();
    return {{.shape = {tokens_.length()},
             .values = std::vector<std::int32_t>(begin, begin + tokens_.length())}};
  }

 private:
  Tokens tokens_;
};

}  // namespace

Dataset operator|(const Dataset& dataset, std::shared_ptr<const Change> change) {
  return {std::make_shared<Changed>(dataset.source(), std::move(change)), dataset.order()};
}

Dataset zip(const Dataset& first, const Dataset& second, std::source_location where) {
  const std::int64_t size = first.source()->size();
  if (second.source()->size() != size) {
    throw UserError({.what = "zip: the numbers of records differ",
                     .where = Span(where),
                     .found = std::to_string(size) + " and " +
                              std::to_string(second.source()->size()) + " records",
                     .wanted = "the same number of records in both",
                     .cure = "pass files that were written together"});
  }
  const Order as_stored{.num_records = size};
  if (second.order() != as_stored && second.order() != first.order()) {
    throw UserError({.what = "zip: the second data set has an order of its own",
                     .where = Span(where),
                     .found = "shuffle, repeat or shard before zip",
                     .wanted = "records in the order in which they are stored",
                     .cure = "shuffle the result: zip(first, second) | shuffle(seed)"});
  }
  return {std::make_shared<Zipped>(first.source(), second.source()), first.order()};
}

Dataset sequences(Tokens tokens) { return Dataset(std::make_shared<Sequences>(std::move(tokens))); }

}  // namespace tessera::data
