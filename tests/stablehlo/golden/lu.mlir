StableHLO cannot express `lu`
  found:  its compilers have no operation that pivots
  wanted: ops that a program of one executable can express
  cure:   solve on the host, or use qr or cholesky, which they have
