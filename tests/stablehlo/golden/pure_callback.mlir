StableHLO cannot express `pure_callback`
  found:  it calls a function of the host program
  wanted: ops that a single executable can express
  cure:   use the host engine, or compute it outside of the function
