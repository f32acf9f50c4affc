// Plans for changes of sharding that have too many atoms for an exact search.
#pragma once

#include <vector>

#include "partition/reshard/search_reshard.h"

namespace tessera::partition {

/// The cheapest plan with at most one permute in which, before and after it, it matters only into
/// how many shards dimensions are cut. A partial sum is resolved by one collective. Cheaper than
/// `bound`; empty if there is none.
std::vector<ReshardStep> direct_reshard(const ReshardRequest& request, double bound);

/// The cheapest plan that never divides atoms which both ends keep together. Cheaper than `bound`;
/// empty if there is none, or if too many atoms remain.
std::vector<ReshardStep> search_bundles(const ReshardRequest& request, double bound);

}  // namespace tessera::partition
