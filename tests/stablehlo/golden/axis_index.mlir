StableHLO cannot express `axis_index`
  found:  no shard_map or vmap has mapped its axis
  wanted: ops that a single executable can express
  cure:   call it within shard_map, or name the axis in vmap's options
