#include "foreign/orbax/zstd_frame.h"

#include <algorithm>
#include <memory>
#include <zstd.h>

#include "checkpoint/json.h"

namespace tessera::foreign {

using checkpoint::BadText;

Bytes unpack_zstd(std::span<const std::uint8_t> frame, std::uint64_t limit) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     ZSTD_freeDCtx);
  ZSTD_inBuffer in = {frame.data(), frame.size(), 0};
  Bytes bytes;
  std::size_t rest = 1;  // 0 at the end of the frame
  while (rest != 0) {
    const std::size_t done = bytes.size();
    const std::uint64_t room =
        std::min<std::uint64_t>(limit - done, std::max(done, ZSTD_DStreamOutSize()));
    bytes.resize(done + room);
    ZSTD_outBuffer out = {bytes.data() + done, room, 0};
    const std::size_t before = in.pos;
    rest = ZSTD_decompressStream(context.get(), &out, &in);
    bytes.resize(done + out.pos);
    if (ZSTD_isError(rest) != 0) throw BadText("zstd data that cannot be read");
    if (rest != 0 && out.pos == 0 && in.pos == before) {
      throw BadText(in.pos == in.size ? "zstd data that is cut off" : "zstd data that is too long");
    }
  }
  if (in.pos != in.size) throw BadText("bytes after the end of zstd data");
  return bytes;
}

}  // namespace tessera::foreign
