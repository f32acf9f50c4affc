// The messages that processes send each other besides data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::run {

/// Why a run ends. A greater reason explains more.
enum class Reason : std::uint8_t {
  told,      // another process has said so
  silent,    // a process does not answer
  diverged,  // a process runs other collectives
  ended,     // a process has ended
  failed,    // this process has thrown
};

/// What a process knows about the end of the run.
struct Finding {
  Reason reason = Reason::told;
  int culprit = -1;
  std::string text = {};        // what the culprit did; the message of its exception
  std::string where = {};       // the collective in which the reporting process is
  std::uint64_t text_hash = 0;  // of the whole text; notes carry only its beginning
};

/// A sign of life.
struct Beat {
  int waits_for = -1;            // the rank that it waits for; -1 while it computes
  std::uint32_t stuck_ms = 0;    // since its last message moved
  std::uint64_t collective = 0;  // identifies the collective that it is in
  std::string where = {};        // the same as text
};

/// A beat, a finding, or neither: the process has done its work and leaves.
struct Note {
  std::optional<Beat> beat = {};
  std::optional<Finding> finding = {};
};

/// At most Link::kMostNoteBytes.
std::string to_bytes(const Note& note);
Note note_of(std::string_view bytes);

/// FNV-1a; `hash` continues an earlier one.
std::uint64_t hash_of(std::string_view text, std::uint64_t hash = 14695981039346656037U);

}  // namespace tessera::run
