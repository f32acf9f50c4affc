#include <gtest/gtest.h>

#include "compile/host/kernels/loop/loop_program.h"
