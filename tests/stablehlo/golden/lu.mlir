StableHLO cannot express `lu`
  found:  StableHLO compilers have no operation that pivots
  wanted: ops that a single executable can express
  cure:   solve on the host, or use qr or cholesky, which those compilers have
