StableHLO cannot express `svd`
  found:  its compilers have no such operation
  wanted: ops that a program of one executable can express
  cure:   compute it on the host, or use eigh of transpose(a) * a
