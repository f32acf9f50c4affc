// Mistakes in Fourier transforms.
#include <gtest/gtest.h>

#include <tessera/linalg.h>

#include "tests/errors/caught.h"
#include "tests/errors/equations.h"

namespace tessera {
namespace {

fft::Complex complex_ones(const Shape& shape) { return {.real = ones(shape), .imag = ones(shape)}; }

TEST(FourierErrors, NumbersOfIntegers) {
  const Caught error = caught([&] { fft::rfft(ones({4}, DType::i32)); });
  EXPECT_EQ(error.text,
            "rfft: this dtype is not supported\n"
            "  where:  <this line>\n"
            "  found:  i32[4]\n"
            "  wanted: f32 or f64\n"
            "  cure:   convert them first: astype(x, DType::f32)");
}

TEST(FourierErrors, PartsOfDifferentShapes) {
  const fft::Complex x{.real = ones({4}), .imag = ones({3})};
  const Caught error = caught([&] { fft::fft(x); });
  EXPECT_EQ(error.text,
            "fft: the real and imaginary parts do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[4] and f32[3]\n"
            "  wanted: real and imaginary parts of the same shape and dtype\n"
            "  cure:   broadcast the parts, or convert one of them");
}

TEST(FourierErrors, TransformsWithoutElements) {
  const Caught error = caught([&] { fft::irfft(complex_ones({2, 1})); });
  EXPECT_EQ(error.text,
            "irfft: the transform has no elements\n"
            "  where:  <this line>\n"
            "  found:  f32[2,1], length -1\n"
            "  wanted: a length of at least 1\n"
            "  cure:   give `length`, or an axis that has elements");
}

TEST(FourierErrors, AxesThatAreNotThere) {
  const Caught error = caught([&] { fft::ifft(complex_ones({4}), {.axis = 1}); });
  EXPECT_EQ(error.text,
            "ifft: axis 1 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[4]\n"
            "  wanted: an axis from -1 to 0\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(FourierErrors, LengthsForOtherAxes) {
  const fft::OptionsN options{.axes = {0, 1}, .lengths = {4}};
  const Caught error = caught([&] { fft::fftn(complex_ones({4, 3}), options); });
  EXPECT_EQ(error.text,
            "fftn: the axes and lengths do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[4,3], 2 axes and 1 lengths\n"
            "  wanted: at least one axis, and a length for each or none\n"
            "  cure:   give as many lengths as axes, or leave one of the lists out");
}

TEST(FourierErrors, AnAxisTwice) {
  const Caught error = caught([&] { fft::rfftn(ones({4, 3}), {.axes = {1, -1}}); });
  EXPECT_EQ(error.text,
            "rfftn: an axis is listed twice\n"
            "  where:  <this line>\n"
            "  found:  f32[4,3], 2 axes and 0 lengths\n"
            "  wanted: distinct axes\n"
            "  cure:   list each axis once");
}

TEST(FourierErrors, FrequenciesOfNoSamples) {
  const Caught error = caught([&] { fft::fftfreq(0); });
  EXPECT_EQ(error.text,
            "fftfreq: the arguments are not valid\n"
            "  where:  <this line>\n"
            "  found:  0 samples at a spacing of 1.000000, f32\n"
            "  wanted: at least one sample, a finite spacing other than 0, and a float dtype\n"
            "  cure:   pass the length of the transform and the distance between two samples");
}

TEST(FourierErrors, EquationsOnNumbers) {
  EXPECT_EQ(error_of_equation("%0: f32[]", "%9: f32[], %8: f32[]", "rfft[scale=1.0] %0"),
            "parse: line 2: rfft: the operand has no dimension\n"
            "  found:  f32[] in '%9: f32[], %8: f32[] = rfft[scale=1.0] %0'\n"
            "  wanted: an array of at least one dimension, [.., length]\n"
            "  cure:   add a dimension with reshape or expand_dims");
}

TEST(FourierErrors, EquationsOnEmptyRows) {
  EXPECT_EQ(error_of_equation("%0: f32[2,0]", "%9: f32[2,1], %8: f32[2,1]", "rfft[scale=1.0] %0"),
            "parse: line 2: rfft: the rows are empty\n"
            "  found:  f32[2,0] in '%9: f32[2,1], %8: f32[2,1] = rfft[scale=1.0] %0'\n"
            "  wanted: at least one element along the last dimension\n"
            "  cure:   pad the rows with zeros");
}

TEST(FourierErrors, EquationsOfAnotherLength) {
  EXPECT_EQ(error_of_equation("%0: f32[2,3]", "%9: f32[2,6]", "irfft[length=6, scale=1.0] %0, %0"),
            "parse: line 2: irfft: the length of the result does not fit the operands\n"
            "  found:  f32[2,3], f32[2,3] in '%9: f32[2,6] = irfft[length=6, scale=1.0] %0, %0'\n"
            "  wanted: a positive `length`, and [.., length / 2 + 1]\n"
            "  cure:   slice the operands or pad them with zeros");
}

}  // namespace
}  // namespace tessera
