#include "compile/host/kernels/fourier/fourier.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "compile/host/kernels/fourier/roots.h"
#include "compile/host/kernels/linalg/matrix_memory.h"

namespace tessera::kernels {

namespace {

/// The smallest length that is not less than `least`, and a power of two times 1, 3, 5 or 9.
std::int64_t easy_length(std::int64_t least) {
  std::int64_t best = 0;
  for (const std::int64_t odd : {1, 3, 5, 9}) {
    std::int64_t length = odd * 64;
    while (length < least) length *= 2;
    best = best == 0 ? length : std::min(best, length);
  }
  return best;
}

template <typename T>
Parts<T> take_parts(MatrixMemory& memory, std::int64_t count) {
  T* re = memory.take<T>(count);
  return {re, memory.take<T>(count)};
}

Parts<const double> parts_of(const std::vector<double>& numbers) {
  return {numbers.data(), numbers.data() + numbers.size() / 2};
}

/// z[k] = x[k] * y[k]
template <typename X, typename Y, typename Z>
void multiply(std::int64_t count, Parts<const X> x, Parts<const Y> y, Parts<Z> z) {
  for (std::int64_t k = 0; k < count; ++k) {
    const double re = x.re[k];
    const double im = x.im[k];
    z.re[k] = static_cast<Z>(re * y.re[k] - im * y.im[k]);
    z.im[k] = static_cast<Z>(re * y.im[k] + im * y.re[k]);
  }
}

template <typename T>
void copy_strided(std::int64_t count, Parts<const T> from, std::int64_t from_stride, Parts<T> to,
                  std::int64_t to_stride) {
  for (; count > 0; --count, from = from + from_stride, to = to + to_stride) {
    *to.re = *from.re;
    *to.im = *from.im;
  }
}

template <typename Plan>
std::shared_ptr<const Plan> shared_plan(std::int64_t length) {
  static std::mutex mutex;
  static std::map<std::int64_t, std::weak_ptr<const Plan>> plans;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (std::shared_ptr<const Plan> found = plans[length].lock()) return found;
  }
  auto plan = std::make_shared<const Plan>(length);
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase_if(plans, [](const auto& entry) { return entry.second.expired(); });
  plans[length] = plan;
  return plan;
}

}  // namespace

template <typename T>
FourierPlan<T>::FourierPlan(std::int64_t length) : length_(length) {
  if (length <= 1) return;
  if (fourier::has_passes(length)) {
    rows_ = fourier::row_plan<T>(length);
    return;
  }
  const std::int64_t size = easy_length(2 * length - 1);
  convolution_ = fourier::row_plan<double>(size);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const std::vector<Root> roots = roots_of_unity(2 * length, 2 * length);
  chirp_.resize(at(2 * length));
  std::vector<double> opposite(at(2 * size));
  std::int64_t square = 0;  // of k, modulo 2 * length
  for (std::int64_t k = 0; k < length; ++k) {
    const Root& root = roots[at(square)];
    chirp_[at(k)] = root.cosine;
    chirp_[at(length + k)] = -root.sine;
    for (const std::int64_t place : {k, (size - k) % size}) {
      opposite[at(place)] = root.cosine;
      opposite[at(size + place)] = root.sine;
    }
    square = (square + 2 * k + 1) % (2 * length);
  }
  spectrum_.resize(at(2 * size));
  MatrixMemory memory;
  fourier::transform_rows(
      convolution_, 1, parts_of(opposite), {spectrum_.data(), spectrum_.data() + size},
      1.0 / static_cast<double>(size), memory.take<double>(fourier::scratch_size(convolution_)));
}

template <typename T>
void FourierPlan<T>::transform(std::int64_t rows, Parts<const T> from, Parts<T> to, T scale) const {
  if (length_ == 0) return;
  if (length_ == 1) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const T mark = (from.re[i] - from.re[i]) + (from.im[i] - from.im[i]);  // 0 or NaN
      to.re[i] = mark == T{0} ? from.re[i] * scale : mark;
      to.im[i] = mark == T{0} ? from.im[i] * scale : mark;
    }
    return;
  }
  if (is_convolution()) {
    for (std::int64_t i = 0; i < rows; ++i) convolve(from + i * length_, to + i * length_, scale);
    return;
  }
  MatrixMemory memory;
  fourier::transform_rows(rows_, rows, from, to, scale,
                          memory.take<T>(fourier::scratch_size(rows_)));
}

template <typename T>
void FourierPlan<T>::transform_columns(std::int64_t count, std::int64_t stride, Parts<const T> from,
                                       Parts<T> to, T scale) const {
  // Longer columns would need many times the memory of small matrices.
  constexpr std::int64_t kLongest = std::int64_t{1} << 16;
  if (length_ <= 1 || length_ > kLongest || is_convolution()) {
    return transform_gathered(count, stride, from, to, scale);
  }
  MatrixMemory memory;
  fourier::transform_columns(rows_, count, {from, stride}, {to, stride}, scale,
                             memory.take<T>(fourier::columns_scratch_size(rows_, count)));
}

template <typename T>
void FourierPlan<T>::transform_gathered(std::int64_t count, std::int64_t stride,
                                        Parts<const T> from, Parts<T> to, T scale) const {
  MatrixMemory memory;
  const auto row = take_parts<T>(memory, length_);
  const auto result = take_parts<T>(memory, length_);
  for (std::int64_t column = 0; column < count; ++column) {
    copy_strided<T>(length_, from + column, stride, row, 1);
    transform(1, row, result, scale);
    copy_strided<T>(length_, result, 1, to + column, stride);
  }
}

/// Uses that j k is (j^2 + k^2 - (k - j)^2) / 2.
template <typename T>
void FourierPlan<T>::convolve(Parts<const T> from, Parts<T> to, T scale) const {
  const std::int64_t size = convolution_.length;
  MatrixMemory memory;
  auto* scratch = memory.take<double>(fourier::scratch_size(convolution_));
  const auto x = take_parts<double>(memory, size);
  const auto y = take_parts<double>(memory, size);
  multiply(length_, from, parts_of(chirp_), x);
  std::fill(x.re + length_, x.re + size, 0.0);
  std::fill(x.im + length_, x.im + size, 0.0);
  fourier::transform_rows(convolution_, 1, x, y, 1.0, scratch);
  multiply<double>(size, Parts<const double>(y), parts_of(spectrum_), y);
  fourier::transform_rows(convolution_, 1, y.swapped(), x.swapped(), static_cast<double>(scale),
                          scratch);
  multiply(length_, Parts<const double>(x), parts_of(chirp_), to);
}

template <typename T>
RealFourierPlan<T>::RealFourierPlan(std::int64_t length) : length_(length) {
  plan_ = fourier_plan<T>(is_halved() ? length / 2 : length);
  if (!is_halved()) return;
  const std::vector<Root> roots = roots_of_unity(length, length / 2 + 1);
  for (const Root& root : roots) turns_.push_back(static_cast<T>(root.cosine));
  for (const Root& root : roots) turns_.push_back(static_cast<T>(root.sine));
}

template <typename T>
void RealFourierPlan<T>::transform(std::int64_t rows, const T* from, Parts<T> to, T scale) const {
  const std::int64_t step = plan_->rows_together();
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    const Parts<T> out = to + row * (length_ / 2 + 1);
    if (is_halved()) {
      transform_halved(count, from + row * length_, out, scale);
    } else {
      transform_whole(count, from + row * length_, out, scale);
    }
  }
}

/// Takes even elements as real parts and odd elements as imaginary parts. If z is the transform of
/// these complex numbers, the transforms of the even and of the odd elements are sums and
/// differences of z and its conjugate in reverse order.
template <typename T>
void RealFourierPlan<T>::transform_halved(std::int64_t rows, const T* from, Parts<T> to,
                                          T scale) const {
  const std::int64_t half = length_ / 2;
  MatrixMemory memory;
  const auto x = take_parts<T>(memory, rows * half);
  const auto z = take_parts<T>(memory, rows * half);
  for (std::int64_t i = 0; i < rows * half; ++i) {
    x.re[i] = from[2 * i];
    x.im[i] = from[2 * i + 1];
  }
  plan_->transform(rows, x, z, scale);
  const T* cosines = turns_.data();
  const T* sines = cosines + half + 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Parts<T> in = z + row * half;
    const Parts<T> out = to + row * (half + 1);
    const T* back_re = in.re + half;
    const T* back_im = in.im + half;
    for (std::int64_t k = 1; k < half; ++k) {
      const T even_re = (in.re[k] + back_re[-k]) * T{0.5};
      const T even_im = (in.im[k] - back_im[-k]) * T{0.5};
      const T odd_re = (in.im[k] + back_im[-k]) * T{0.5};
      const T odd_im = (back_re[-k] - in.re[k]) * T{0.5};
      out.re[k] = even_re + (odd_re * cosines[k] + odd_im * sines[k]);
      out.im[k] = even_im + (odd_im * cosines[k] - odd_re * sines[k]);
    }
    out.re[0] = in.re[0] + in.im[0];
    out.re[half] = in.re[0] - in.im[0];
    out.im[0] = out.im[half] = in.re[0] - in.re[0];  // 0 or NaN
  }
}

template <typename T>
void RealFourierPlan<T>::transform_whole(std::int64_t rows, const T* from, Parts<T> to,
                                         T scale) const {
  MatrixMemory memory;
  const std::int64_t kept = length_ / 2 + 1;
  const T* zeros = memory.take_zeros<T>(rows * length_);
  const auto z = take_parts<T>(memory, rows * length_);
  plan_->transform(rows, {from, zeros}, z, scale);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(z.re + row * length_, kept, to.re + row * kept);
    std::copy_n(z.im + row * length_, kept, to.im + row * kept);
    to.im[row * kept] = to.re[row * kept] - to.re[row * kept];  // 0 or NaN
  }
}

template <typename T>
void RealFourierPlan<T>::invert(std::int64_t rows, Parts<const T> from, T* to, T scale) const {
  if (length_ == 0) return;
  const std::int64_t step = plan_->rows_together();
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    const Parts<const T> in = from + row * (length_ / 2 + 1);
    if (is_halved()) {
      invert_halved(count, in, to + row * length_, scale);
    } else {
      invert_whole(count, in, to + row * length_, scale);
    }
  }
}

template <typename T>
void RealFourierPlan<T>::invert_halved(std::int64_t rows, Parts<const T> from, T* to,
                                       T scale) const {
  const std::int64_t half = length_ / 2;
  MatrixMemory memory;
  const auto z = take_parts<T>(memory, rows * half);
  const auto x = take_parts<T>(memory, rows * half);
  const T* cosines = turns_.data();
  const T* sines = cosines + half + 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Parts<const T> in = from + row * (half + 1);
    const Parts<T> out = z + row * half;
    const T* back_re = in.re + half;
    const T* back_im = in.im + half;
    for (std::int64_t k = 1; k < half; ++k) {
      const T odd_re = in.re[k] - back_re[-k];
      const T odd_im = in.im[k] + back_im[-k];
      out.re[k] = (in.re[k] + back_re[-k]) - (odd_im * cosines[k] + odd_re * sines[k]);
      out.im[k] = (in.im[k] - back_im[-k]) + (odd_re * cosines[k] - odd_im * sines[k]);
    }
    out.re[0] = in.re[0] + in.re[half];
    out.im[0] = in.re[0] - in.re[half];
  }
  plan_->invert(rows, z, x, scale);
  for (std::int64_t i = 0; i < rows * half; ++i) {
    to[2 * i] = x.re[i];
    to[2 * i + 1] = x.im[i];
  }
}

/// The elements that `from` lacks are conjugates of others.
template <typename T>
void RealFourierPlan<T>::invert_whole(std::int64_t rows, Parts<const T> from, T* to,
                                      T scale) const {
  MatrixMemory memory;
  const std::int64_t kept = length_ / 2 + 1;
  const auto z = take_parts<T>(memory, rows * length_);
  T* remains = memory.take<T>(rows * length_);
  for (std::int64_t row = 0; row < rows; ++row) {
    const Parts<const T> in = from + row * kept;
    const Parts<T> out = z + row * length_;
    out.re[0] = in.re[0];
    out.im[0] = T{0};
    for (std::int64_t k = 1; k < kept; ++k) {
      out.re[k] = out.re[length_ - k] = in.re[k];
      out.im[k] = in.im[k];
      out.im[length_ - k] = -in.im[k];
    }
  }
  plan_->invert(rows, z, {to, remains}, scale);
}

template <typename T>
std::shared_ptr<const FourierPlan<T>> fourier_plan(std::int64_t length) {
  return shared_plan<FourierPlan<T>>(length);
}
template <typename T>
std::shared_ptr<const RealFourierPlan<T>> real_fourier_plan(std::int64_t length) {
  return shared_plan<RealFourierPlan<T>>(length);
}

template class FourierPlan<float>;
template class FourierPlan<double>;
template class RealFourierPlan<float>;
template class RealFourierPlan<double>;
template std::shared_ptr<const FourierPlan<float>> fourier_plan<float>(std::int64_t);
template std::shared_ptr<const FourierPlan<double>> fourier_plan<double>(std::int64_t);
template std::shared_ptr<const RealFourierPlan<float>> real_fourier_plan<float>(std::int64_t);
template std::shared_ptr<const RealFourierPlan<double>> real_fourier_plan<double>(std::int64_t);

}  // namespace tessera::kernels
