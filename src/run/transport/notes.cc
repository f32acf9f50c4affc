#include "run/transport/notes.h"

#include <algorithm>
#include <cstring>

#include "run/transport/link.h"

namespace tessera::run {

namespace {

enum class Kind : std::uint8_t { leaves, beat, finding };

struct NoteHeader {
  Kind kind = Kind::leaves;
  Reason reason = Reason::told;
  std::uint16_t where_bytes = 0;  // the message text comes after it
  std::int32_t rank = -1;         // culprit or waits_for
  std::uint32_t stuck_ms = 0;
  std::uint64_t hash = 0;  // of the text, or the collective
};

constexpr std::size_t kMostWhere = 180;

}  // namespace

std::string to_bytes(const Note& note) {
  NoteHeader header;
  std::string where;
  std::string text;
  if (note.beat) {
    header.kind = Kind::beat;
    header.rank = note.beat->waits_for;
    header.stuck_ms = note.beat->stuck_ms;
    header.hash = note.beat->collective;
    where = note.beat->where.substr(0, kMostWhere);
  } else if (note.finding) {
    header.kind = Kind::finding;
    header.reason = note.finding->reason;
    header.rank = note.finding->culprit;
    header.hash = note.finding->text_hash;
    where = note.finding->where.substr(0, kMostWhere);
    text = note.finding->text;
  }
  header.where_bytes = static_cast<std::uint16_t>(where.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += where;
  bytes += text.substr(0, Link::kMostNoteBytes - bytes.size());
  return bytes;
}

Note note_of(std::string_view bytes) {
  NoteHeader header;
  if (bytes.size() < sizeof(header)) return {};
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string where(bytes.substr(sizeof(header), header.where_bytes));
  const std::size_t begin = std::min(bytes.size(), sizeof(header) + header.where_bytes);
  Note note;
  if (header.kind == Kind::beat) {
    note.beat = Beat{.waits_for = header.rank,
                     .stuck_ms = header.stuck_ms,
                     .collective = header.hash,
                     .where = where};
  } else if (header.kind == Kind::finding) {
    note.finding = Finding{.reason = header.reason,
                           .culprit = header.rank,
                           .text = std::string(bytes.substr(begin)),
                           .where = where,
                           .text_hash = header.hash};
  }
  return note;
}

std::uint64_t hash_of(std::string_view text, std::uint64_t hash) {
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211U;
  }
  return hash;
}

}  // namespace tessera::run
