// Curves of a run, for TensorBoard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/types.h>

namespace TESSERA_EXPORT tessera {

/// Writes the curves of a run to a TensorBoard event file.
///
///   SummaryWriter scalars("runs/vit");
///   scalars.scalar("train/loss", loss, step);
class SummaryWriter {
 public:
  /// Begins a new file in `folder`, which is created if needed. Files of earlier runs stay. The
  /// constructor and all writes throw RuntimeFault if the file cannot be written.
  explicit SummaryWriter(const std::string& folder);
  SummaryWriter(SummaryWriter&& other) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;
  ~SummaryWriter();
  /// Adds a point to the curve `tag`. The value is stored as f32. Slashes group tags.
  void scalar(const std::string& tag, double value, std::int64_t step);
  /// Makes everything so far visible to readers. This also happens about every second by itself,
  /// and at the end.
  void flush();
  const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
