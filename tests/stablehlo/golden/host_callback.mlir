StableHLO cannot express `host_callback`
  found:  it calls a function of the host program
  wanted: ops that a single executable can express
  cure:   use the host engine, or return the array from the function and print it outside
