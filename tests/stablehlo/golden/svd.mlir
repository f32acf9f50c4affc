StableHLO cannot express `svd`
  found:  StableHLO compilers have no such operation
  wanted: ops that a single executable can express
  cure:   compute it on the host, or use eigh of transpose(a) * a
