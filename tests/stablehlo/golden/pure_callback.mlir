StableHLO cannot express `pure_callback`
  found:  it calls the program that runs it
  wanted: ops that a program of one executable can express
  cure:   use the host engine, or compute it outside of the function
