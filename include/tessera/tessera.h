// Includes the core library.
#pragma once

#include <tessera/activations.h>
#include <tessera/array.h>
#include <tessera/control.h>
#include <tessera/debug.h>
#include <tessera/derivatives.h>
#include <tessera/dlpack.h>
#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/linalg.h>
#include <tessera/mesh.h>
#include <tessera/ops.h>
#include <tessera/profile.h>
#include <tessera/random.h>
#include <tessera/schedule.h>
#include <tessera/shardings.h>
#include <tessera/statistics.h>
#include <tessera/transform.h>
#include <tessera/tree.h>
#include <tessera/types.h>
