#include "compile/host/kernels/loop/loop_program.h"

#include <gtest/gtest.h>
