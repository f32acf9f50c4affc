// Plans for changes of sharding that have too many atoms for an exact search.
#pragma once

#include <vector>

#include "partition/reshard/search_reshard.h"

namespace tessera::partition {

/// The cheapest plan with at most one permute. Before and after the permute, only the number of
/// shards of each dimension matters. One collective resolves a partial sum. The plan is cheaper
/// than `bound`; empty if there is none.
std::vector<ReshardStep> direct_reshard(const ReshardRequest& request, double bound);

/// The cheapest plan that never separates atoms which are together at both ends. The plan is
/// cheaper than `bound`; empty if there is none, or if too many atoms remain.
std::vector<ReshardStep> search_bundles(const ReshardRequest& request, double bound);

}  // namespace tessera::partition
